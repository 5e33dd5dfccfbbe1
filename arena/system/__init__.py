"""This machine and its kernel: cores, shared memory, processes, address layout, stack dumps, launcher variables.

Here belongs what asks or sets something of the operating system.
Not here: what a run does with the answer (plan, launch), and MPI (comms).
"""
