"""Algorithms that learn from a replay buffer: dqn, sac and td3 (ddpg is td3 with other settings).

Here belong their networks, settings and noise, and their common base class.
Not here: the replay itself, rows and update ratio (arena.experience), and their compiled loops (policies.compiled).
"""
