"""Algorithms that learn from the rollouts of their current policy.

Here belong PPO, its two computation paths, its loss, advantages, and the scale of its values.
Not here: networks and distributions, which acting needs (arena.policies); replay (arena.policies.off_policy).
"""
