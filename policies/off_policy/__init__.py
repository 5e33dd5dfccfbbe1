"""Algorithms that learn from a replay: dqn, sac and td3 (ddpg is td3 with other settings).

Here belong their networks, settings and noise, and what they have in common.
Not here: the replay itself, rows and update ratio (arena.experience), and their compiled loops (policies.compiled).
"""
