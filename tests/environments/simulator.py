"""Environments whose copies must differ: by a port, or by the context that RLlib gives."""

import socket
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Simulator(gymnasium.Env):
    """Listens on a port while it lives. Its observation is the port."""

    observation_space = spaces.Box(0, 65535, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, port: int = 5005) -> None:
        """Bind the port."""
        self.port = port
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", port))
        self.socket.listen()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start."""
        super().reset(seed=seed)
        self.time = 0
        return np.array([self.port], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """End after five steps."""
        self.time += 1
        return np.array([self.port], np.float32), 1.0, self.time == 5, False, {}

    def close(self) -> None:
        """Release the port."""
        self.socket.close()


class ByContext(Simulator):
    """Takes its settings as RLlib's environments do."""

    def __init__(self, env_config: Any) -> None:
        """Keep the numbers by which copies differ."""
        super().__init__(env_config["port"])
        self.numbers = (env_config.worker_index, env_config.vector_index, env_config.get("level"))
