"""Algorithms, one readable file each, and the networks and returns that they share."""
