"""The league: who plays whom next, who is frozen, and what every result says; no MPI, no torch, no clock."""
