"""Empty container repositioning: vessels carry empty containers to where orders wait for them.

Here belong the simulation, its topologies (YAML), the environment and its pictures.
Not here: how environments are stepped and adapted (arena.envs).
"""
