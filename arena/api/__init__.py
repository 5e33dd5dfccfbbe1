"""The Python interface, ``import arena``: training, runs and trained players from scripts and notebooks.

Not here: what a rank executes, and the command line; both stand on the same rooms below.
"""
