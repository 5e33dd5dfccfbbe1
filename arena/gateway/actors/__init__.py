"""Actors: users' classes, the built-in one, their agents, and their execution."""
