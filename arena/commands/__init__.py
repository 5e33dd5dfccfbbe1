"""The commands beside a run: one module for each ``arena COMMAND``.

Here belong arguments, and what is printed.
Not here: what a command works out, which lies in the room that it is about.
"""
