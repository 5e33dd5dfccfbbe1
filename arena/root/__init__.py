"""The root process: it hands out jobs, keeps the league and the records, and decides when a round is over.

Here belongs what rank 0 alone does.
Not here: file formats (records), the league's rules (league), and MPI (comms).
"""
