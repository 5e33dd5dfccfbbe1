"""Ranks of one player: their view of the run, their files, and updates that they make together.

Here belongs what workers and learners share.
Not here: seats and acting (worker), receiving experience (learner), reductions (comms) and algorithms (policies).
"""
