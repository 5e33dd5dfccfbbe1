"""What plays a game: users' actors, the built-in one, the agents that they call, and how they are called."""
