"""The worker: one seat, one policy, its loop, its proxies and its opponents.

Here belongs what a rank that acts on a seat does.
Not here: algorithms (policies), rollouts (experience), and the root's side of the league (root).
"""
