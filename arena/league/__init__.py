"""The league: matchmaking, snapshots, payoff and ratings as a state machine without MPI, torch or a clock."""
