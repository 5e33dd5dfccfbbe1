"""What the ranks of one player share: what they know of the run, their files, and an update that they make together.

Here belongs what a worker and a learner both do.
Not here: seats and acting (worker), taking experience (learner), reductions (comms) and algorithms (policies).
"""
