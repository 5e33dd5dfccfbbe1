"""Ratings of players, openskill and Elo, and the intervals of win rates and ratings."""
