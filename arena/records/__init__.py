"""What a run leaves on disk, written and read: run directory, database, checkpoints, TensorBoard files.

Here belongs every file format of a run and both ends of it.
Not here: how it is shown (report), and when it is written (root).
"""
