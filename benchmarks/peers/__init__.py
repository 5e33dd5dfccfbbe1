"""What others offer, each measured by a program of its own that needs nothing of the arena: peers bring other pins."""
