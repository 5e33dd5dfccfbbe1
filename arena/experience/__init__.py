"""Experience shared by policies, workers and learners: rollouts, replay buffers, sampling, the update ratio.

Here belongs what any algorithm may use and no process owns.
Not here: algorithms (policies), gradients and weights (tensors), MPI (comms), the worker's own loop (worker).
"""
