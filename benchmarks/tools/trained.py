"""Run directories with players that have weights, without a run that has trained them."""

import re
from pathlib import Path

from arena.common.registry import make_environment
from arena.config.resumed import load_stored_config
from arena.config.run import load_config
from arena.policies.loader import build
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import write_tensors

POLE = """
name: pole
steps: 1000
env: {use: gymnasium:CartPole-v1}
policies: {blue: {use: ppo, settings: {hidden: [8]}}}
matches: [{seats: [blue]}]
"""
"""The smallest run: one player, ``blue``, and its pole."""


def make_run(root: Path, text: str) -> RunDirectory:
    """Return the directory of a run with this configuration, below ``root``."""
    name = re.search(r"name: (\w+)", text)
    assert name is not None
    run = RunDirectory(root, name[1])
    path = root / "config.yaml"
    path.write_text(text, encoding="utf-8")
    run.create(load_config(path).to_yaml(), {}, resume=False)
    return run


def give_weights(run: RunDirectory, player: str, steps: int, *, seed: int = 0) -> Path:
    """Write the weights of a fresh policy, for the entity of the player's first seat, as its snapshot."""
    config = load_stored_config(run.config)
    rows = config.round_list()[0].rows
    row, entity = next((row, seat.entities[0]) for row in rows for seat in row.seats if seat.player == player)
    wrappers = [(wrapper.use, wrapper.settings) for wrapper in row.env.wrappers]
    environment = make_environment(row.env.use, row.env.settings, wrappers)
    policy = config.policies[player]
    built = build(policy.use, environment.entities[entity], policy.settings, lanes=1, seed=seed)
    environment.close()
    path = run.snapshot(player, steps)
    path.parent.mkdir(exist_ok=True)
    write_tensors(path, built.weights())
    return path
