"""The learner: a rank without a seat, which learns from what the workers of its player collect.

Here belongs what it does besides learning: taking experience, publishing weights, and letting its workers go.
Not here: what it has in common with a worker that learns itself (group), and what carries experience (comms).
"""
