"""The arena: many reinforcement-learning policies learn at once, with and against each other, over MPI."""

__version__ = "0.1.0"
