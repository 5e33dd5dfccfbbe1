"""The league: which players play next, which are frozen, and what every result says; no MPI, no torch, no clock."""
