"""Plays Atari Pong against a gateway, from the memory of the console; cartpole_games.py explains the exchange.

python examples/pong_games.py http://127.0.0.1:8000 [GAMES]
"""

import ale_py
import gymnasium
from cartpole_games import play_games
from gymnasium.wrappers import FrameStackObservation

gymnasium.register_envs(ale_py)


def make() -> gymnasium.Env:
    """Return a console that shows its memory of two moments."""
    console = gymnasium.make("ALE/Pong-v5", obs_type="ram", frameskip=4, repeat_action_probability=0.0)
    return FrameStackObservation(console, stack_size=2)


if __name__ == "__main__":
    play_games(make, 2)
