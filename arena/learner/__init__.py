"""The learner: a rank without a seat, which learns from the experience of its player's workers.

Here belongs what it does besides learning: receiving experience, publishing weights, ending its workers.
Not here: what it shares with a worker that learns in place (group), and the transport of experience (comms).
"""
