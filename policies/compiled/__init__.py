"""The compiled path of small networks: loops, layers and the optimizer's step.

Here belongs code written by hand for speed that torch can also compute.
Not here: the algorithms themselves (policies).
"""
