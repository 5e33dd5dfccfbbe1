"""Distributions over action spaces: sampled from arrays to act, differentiated by torch or in closed form to learn.

A distribution reads ``outputs`` numbers per sample from the network, and ``parameters``, learned numbers that do not
depend on the observation. A sample is a *choice*: ``choices`` float32 numbers, which ``actions`` converts to members of
the space. Learning stores and uses choices only, since the conversion may lose information (clipping to bounds).
"""
