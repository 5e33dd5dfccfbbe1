"""How good players are, and how sure that is: openskill and Elo, and the intervals of win rates and ratings."""
