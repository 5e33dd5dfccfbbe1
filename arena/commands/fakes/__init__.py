"""Stand-ins for one side of the contract of external games, so that the other is developed without it."""
