"""This machine and its kernel: cores, shared memory, processes, address layout, stack dumps, launcher variables.

Here belongs what queries or changes the operating system.
Not here: what a run does with the results (plan, launch), and MPI (comms).
"""
