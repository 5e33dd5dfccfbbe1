"""Files of a run, written and read: run directory, database, checkpoints, TensorBoard files.

Here belongs every file format of a run and both ends of it.
Not here: their presentation (report), and when they are written (root).
"""
