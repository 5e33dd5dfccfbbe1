"""Episodes of a match: their line-ups, their starts and resets, the running ones and the first ones."""
