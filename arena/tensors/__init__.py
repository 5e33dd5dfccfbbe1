"""Arrays and tensors: gradients averaged over a group, weights in files, functions that Numba compiles.

Here belongs what any algorithm may use and what holds no experience.
Not here: rollouts and replays (experience), algorithms (policies), MPI (comms).
"""
