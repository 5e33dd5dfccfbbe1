"""Touchdown: two teams on a square field, each running for the other's end.

Here belong the environment and its pictures.
Not here: how environments are stepped and adapted (arena.envs).
"""
