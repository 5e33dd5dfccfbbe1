"""Built-in policies with spaces of every kind, and inputs for them."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from arena.common import registry
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces

ROWS = 64
VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (24, 24, 3), np.uint8)
NESTED = spaces.Dict(
    {
        "cards": spaces.MultiDiscrete([3, 5], start=[1, 0]),
        "picture": IMAGE,
        "speed": spaces.Box(-1, 1, (), np.float32),
        "rest": spaces.Tuple(
            (spaces.Discrete(4, start=-1), spaces.MultiBinary(3), spaces.Box(-9, 9, (2, 2), np.float64))
        ),
    }
)
BOX = spaces.Box(np.array([-2, 0, -np.inf]), np.array([1, 10, np.inf]), (3,), np.float32)
BOUNDED = spaces.Box(np.array([[-2.0], [0.0]]), np.array([[1.0], [10.0]]), (2, 1), np.float64)
MANY = spaces.MultiDiscrete([2, 4, 3], start=[0, 5, 1])
JOINT = spaces.Dict({"a": spaces.MultiBinary(2), "b": spaces.Discrete(3), "c": spaces.Tuple((BOX, spaces.Discrete(2)))})

PAIR = spaces.Dict({"picture": spaces.Box(0, 255, (36, 36, 3), np.uint8), "speed": spaces.Box(-9, 9, (2,))})
BOX2 = spaces.Box(-1, 1, (2,))
UNITS = spaces.Dict(
    {
        "kind": spaces.Discrete(3),
        "self": spaces.Box(-9, 9, (2,)),
        "units": spaces.Box(-9, 9, (5, 3)),
        "units_mask": spaces.MultiBinary(5),
    }
)
OWN = "tests.policies.own_networks:Small"


class Case(NamedTuple):
    use: str
    observation: spaces.Space
    action: spaces.Space
    mask: int = 0
    settings: dict[str, Any] = {}  # noqa: RUF012
    size: float = 0.15  # of the weights


SMALL = {"hidden": [16]}
CASES = {
    "vector": Case("ppo", VECTOR, spaces.Discrete(4, start=2), settings=SMALL),
    "vector, masked": Case("ppo", VECTOR, spaces.Discrete(4), 4, SMALL),
    "image, multi-discrete, masked": Case("ppo", IMAGE, MANY, 9),
    "nested, box": Case("ppo", NESTED, BOX, settings={"shared": False, "image_features": 16}),
    "nested, joint, masked": Case("ppo", NESTED, JOINT, 5, {"image_features": 16, "activation": "elu"}),
    "bounded box": Case("ppo", VECTOR, BOUNDED, settings=SMALL),
    "lstm": Case("ppo", VECTOR, spaces.Discrete(4), settings={"lstm": 8}),
    "lstm, shared, masked": Case("ppo", NESTED, MANY, 9, {"lstm": 8, "shared": True, "image_features": 16}),
    "gru": Case("ppo", VECTOR, BOX, settings={"gru": 8, **SMALL}),
    "dqn": Case("dqn", VECTOR, spaces.Discrete(4, start=2), settings=SMALL),
    "dqn, masked, dueling": Case("dqn", NESTED, spaces.Discrete(4), 4, {"dueling": True, "image_features": 16}),
    "sac": Case("sac", VECTOR, BOUNDED, settings=SMALL),
    "sac, discrete, masked": Case("sac", VECTOR, spaces.Discrete(4, start=2), 4, SMALL),
    "sac, multi-discrete": Case("sac", NESTED, MANY, settings={"image_features": 16, **SMALL}),
    "td3": Case("td3", NESTED, BOUNDED, settings={"image_features": 16, **SMALL}),
    "normalised": Case("ppo", VECTOR, spaces.Discrete(4, start=2), settings={"normalize_observations": True, **SMALL}),
    "normalised, lstm, nested": Case(
        "ppo", NESTED, BOX, settings={"lstm": 8, "image_features": 16, "normalize_observations": True}
    ),
    "normalised, sac": Case("sac", VECTOR, BOUNDED, settings={"normalize_observations": True, **SMALL}),
    "impala, masked": Case("ppo", IMAGE, MANY, 9, {"encoder": "impala", "image_features": 16}, size=0.07),
    "impala, dqn": Case(
        "dqn", NESTED, spaces.Discrete(4), settings={"encoder": "impala", "image_features": 16}, size=0.08
    ),
    "attention, masked": Case("ppo", UNITS, MANY, 9, {"encoder": "attention", **SMALL}),
    "attention, normalised, lstm": Case(
        "ppo", UNITS, spaces.Discrete(4), settings={"encoder": "attention", "normalize_observations": True, "lstm": 8}
    ),
    "attention, sac": Case(
        "sac", UNITS["units"], BOX2, settings={"encoder": "attention", "encoder_settings": {"width": 8}, **SMALL}
    ),
    "own encoder": Case("ppo", NESTED, JOINT, 5, {"encoder": OWN}),
    "own encoder with dropout": Case(
        "ppo", NESTED, spaces.Discrete(4), settings={"encoder": OWN.replace("Small", "Dropped")}
    ),
    "own network": Case("ppo", VECTOR, BOX, settings={"network": OWN.replace("Small", "Net")}),
    "own network, recurrent, masked": Case("ppo", NESTED, MANY, 9, {"network": OWN.replace("Small", "Memory")}),
    "own encoder, lstm": Case("ppo", NESTED, spaces.Discrete(4), settings={"encoder": OWN, "lstm": 8}),
    "own encoder, dqn": Case(
        "dqn", PAIR, spaces.Discrete(4), 4, {"encoder": {"picture": "nature", "rest": OWN}, "image_features": 16}
    ),
    "extractor, sac": Case(
        "sac", PAIR, BOX2, settings={"encoder": "stable_baselines3.common.torch_layers:CombinedExtractor", **SMALL}
    ),
    "ddpg": Case("ddpg", VECTOR, spaces.Box(-2, 3, (3,), np.float32), settings=SMALL),
}


def trained(case: Case) -> Any:
    """Return a policy whose weights are not those of a new one, which decides hardly anything."""
    entity = EntitySpaces("player", case.observation, case.action, case.mask)
    policy = registry.build_policy(case.use, entity, case.settings, lanes=ROWS, seed=1)
    draws = torch.Generator().manual_seed(2)
    weights = policy.weights()
    sizes = {name: 5.0 if name.endswith(".factor") else case.size for name in weights}
    policy.load_weights({name: sizes[name] * torch.randn(t.shape, generator=draws) for name, t in weights.items()})
    return policy


def observed(case: Case, seed: int) -> Any:
    space = batch_space(case.observation, ROWS)
    space.seed(seed)
    rows = space.sample()
    return map_tree(np.ascontiguousarray, rows)


def masks(case: Case, seed: int) -> np.ndarray | None:
    if not case.mask:
        return None
    flags = np.random.default_rng(seed).integers(0, 2, (ROWS, case.mask), np.int8)
    flags[flags.sum(1) == 0] = 1
    return flags
