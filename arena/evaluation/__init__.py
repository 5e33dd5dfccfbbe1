"""Playing without MPI: evaluation, tournaments, exploitability, video.

Here belongs what lets trained players play in one process.
Not here: command lines (commands), and training.
"""
