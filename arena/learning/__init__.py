"""What policies, workers and learners share: rollouts, gradients, compiled loops.

Here belongs what any algorithm may use and no process owns.
Not here: algorithms (policies), MPI (comms), and the worker's own loop (worker).
"""
