"""Who does what: a pure function of the configuration and the number of ranks, its text and its picture.

Here belong layout, pinning, the description of a plan, and diagrams.
Not here: anything that starts, asks or waits for a process.
"""
