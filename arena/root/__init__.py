"""The root process: assigns jobs, keeps the league and the records, and ends rounds.

Here belongs what only rank 0 does.
Not here: file formats (records), the league's rules (league), and MPI (comms).
"""
