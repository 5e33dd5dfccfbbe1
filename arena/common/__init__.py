"""Small, pure pieces that every room may use: errors, the registry, waiting, seeds, text, validation, colours.

Here belongs what has no state, needs nothing of ours, and is used by several rooms.
Not here: anything that depends on MPI, torch, files of a run, or one process only.
"""
