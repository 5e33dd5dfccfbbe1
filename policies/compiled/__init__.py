"""The hand-written fast path of small networks: compiled loops, layers and the optimizer's step.

Here belongs what is done by hand for speed and can also be done by torch.
Not here: what an algorithm decides (policies).
"""
