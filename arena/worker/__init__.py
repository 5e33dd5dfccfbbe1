"""The worker: one seat, one policy, its loop, its proxies and its opponents.

Here belongs what a rank that plays does.
Not here: algorithms (policies), rollouts and gradients (learning), and the root's side of the league (root).
"""
