"""What benchmarks share: measuring, running, observing processes, and planting faults.

Here belongs what more than one benchmark needs.
Not here: a question of its own, which is a module beside this folder.
"""
