"""Plans: roles of ranks as a pure function of the configuration and the number of ranks, their text and picture.

Here belong layout, pinning, the description of a plan, and diagrams.
Not here: anything that starts, queries or waits for a process.
"""
