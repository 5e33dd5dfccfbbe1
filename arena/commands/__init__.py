"""Commands besides a run: one module for each ``arena COMMAND``.

Here belong their arguments and output.
Not here: their computations, which lie in the room of their subject.
"""
