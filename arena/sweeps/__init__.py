"""Several runs of one configuration: seeds, a grid of values, or a search by Optuna; each run is a process of its own.

Not here: what one run does, and the comparison of runs (report).
"""
