"""Matches without MPI: evaluation, tournaments, exploitability, video.

Here belong matches of trained players in one process.
Not here: command lines (commands), and training.
"""
