"""Adapter of agents written for a single process: a class with ``act`` and ``learn`` that imports nothing of the arena.

    class Agent:
        horizon = 16                                       # optional: time steps between two calls of learn
        n_step, gamma = 1, 1.0                             # optional: actions that a transition spans, and the discount

        def __init__(self, observation_space, action_space, **settings): ...

        def act(self, observations):                       # [N, ...] -> actions [N, ...]
            ...                                            # may also take explore, action_mask

        def learn(self, transitions):                      # from any number of lanes
            ...                                            # may return metrics, a dict of numbers

``transitions`` is a dict of arrays ``[N, ...]``: ``observations``, ``actions``, ``rewards``, ``next_observations``,
``discounts`` (``gamma`` to the power of the number of actions that it spans, and 0 if the episode has terminated) and,
with masks, ``next_action_mask``. A truncated episode keeps its discount, and its last ``next_observations`` is the
final one.

With ``learners`` the agent exists twice: ``act`` is called on a worker's, ``learn`` on the learner's. Changes by
``learn`` reach the worker: the parameters of all torch modules that are attributes, and the attributes that are
numbers, such as a probability of random actions. Checkpoints hold these too, or the result of ``state_dict``.
"""

import functools
import inspect
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from arena.common.errors import ConfigError
from arena.common.trees import leaf_dtype, leaf_shape, map_space, nest, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.experience.rows import Transitions
from arena.policies.interface import Decision, Reducer

HORIZON = 16
ACTION, MODULE, NUMBER = "action.", "agent.", "number."
"""Prefixes of the columns of actions, and of the names of modules and numbers among the weights."""


class AgentSettings:
    """Arguments of an agent's constructor besides the spaces."""

    def __init__(self, **values: Any) -> None:
        """Keep them unchanged."""
        self.values = values


class SingleProcessAgent:
    """Policy that wraps an agent written for a single process; see ``Policy``."""

    agent_class: ClassVar[type]
    Settings = AgentSettings

    def __init__(
        self, spaces: EntitySpaces, settings: AgentSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``.

        Raises:
          ConfigError: the agent does not accept the settings.
        """
        self._spaces, self._lanes = spaces, lanes
        arguments = dict(settings.values)
        signature = inspect.signature(self.agent_class)
        if "seed" in signature.parameters:
            arguments.setdefault("seed", seed % 2**31)
        try:
            signature.bind(spaces.observation, spaces.action, **arguments)
        except TypeError as error:
            raise ConfigError(f"settings of {self.agent_class.__name__}, which takes {signature}: {error}") from error
        self.agent: Any = self.agent_class(spaces.observation, spaces.action, **arguments)
        self.horizon = int(getattr(self.agent, "horizon", HORIZON))
        leaves = tree_leaves(map_space(spaces.action, lambda leaf: [leaf_shape(leaf), leaf_dtype(leaf)]))
        self.extras: dict[str, tuple[tuple[int, ...], Any]] = {
            f"{ACTION}{number}": (shape, dtype) for number, (shape, dtype) in enumerate(leaves)
        }
        self._takes = {"explore", "action_mask"} & set(inspect.signature(self.agent.act).parameters)
        self._transitions: Transitions | None = None
        self._begun = self._numbers()  # initial values: those that differ later were changed by ``learn``

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """See ``Policy``."""
        keywords = {"explore": learning and not deterministic, "action_mask": action_mask}
        actions = self.agent.act(observations, **{name: keywords[name] for name in self._takes})
        if not learning:
            return Decision(actions, {})
        return Decision(actions, {f"{ACTION}{number}": leaf for number, leaf in enumerate(tree_leaves(actions))})

    def learn(self, rollout: Any, group: Reducer) -> dict[str, float]:
        """See ``Policy``.

        Raises:
          ConfigError: the group has several learning workers, but the agent does not average its parameters over them.
        """
        if group.size > 1:
            raise ConfigError(
                f"{self.agent_class.__name__}: expected one rank that learns, found {group.size}; set learners: 1, or "
                "write a loop of its own, which averages gradients by its group"
            )
        if self._transitions is None:
            n_step, gamma = int(getattr(self.agent, "n_step", 1)), float(getattr(self.agent, "gamma", 1.0))
            self._transitions = Transitions(self._spaces, self.extras, lanes=self._lanes, gamma=gamma, n_step=n_step)
        rows = self._transitions.rows(rollout)
        names = rows.dtype.names or ()

        def tree(space: Any, prefix: str) -> Any:
            return nest(space, [rows[name].copy() for name in names if name.startswith(prefix)])

        transitions = {
            "observations": tree(self._spaces.observation, OBSERVATION),
            "actions": tree(self._spaces.action, ACTION),
            "rewards": rows["reward"].copy(),
            "next_observations": tree(self._spaces.observation, FOLLOWING),
            "discounts": rows["discount"].copy(),
        }
        if "next_mask" in names:
            transitions["next_action_mask"] = rows["next_mask"].copy()
        metrics = self.agent.learn(transitions) if len(rows) else None
        return {name: float(value) for name, value in (metrics or {}).items()}

    def set_progress(self, done: float) -> None:
        """See ``Policy``: forwarded if the agent has such a method."""
        if hasattr(self.agent, "set_progress"):
            self.agent.set_progress(done)

    # State

    def _modules(self) -> dict[str, Any]:
        import torch

        return {name: value for name, value in vars(self.agent).items() if isinstance(value, torch.nn.Module)}

    def _numbers(self) -> dict[str, float]:
        attributes = {name: value for name, value in vars(self.agent).items() if isinstance(value, numbers.Real)}
        return {name: float(value) for name, value in sorted(attributes.items())}

    def weights(self) -> dict[str, Any]:
        """See ``Policy``: the parameters and buffers of all modules."""
        return {
            f"{MODULE}{name}.{below}": tensor.detach().cpu().clone()
            for name, module in self._modules().items()
            for below, tensor in module.state_dict().items()
        }

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """See ``Policy``."""
        from arena.policies.copies import copy_tensors

        into = {
            f"{MODULE}{name}.{below}": tensor
            for name, module in self._modules().items()
            for below, tensor in module.state_dict().items()
        }
        copy_tensors(into, {name: tensor for name, tensor in weights.items() if not name.startswith(NUMBER)})

    def acting_state(self) -> dict[str, Any]:
        """See ``Policy``: the weights, and for each number its value and whether ``learn`` has changed it."""
        import torch

        now = self._numbers()
        state = self.weights()
        for name, begun in self._begun.items():
            value = now.get(name, begun)
            state[f"{NUMBER}{name}"] = torch.tensor([value, float(value != begun)], dtype=torch.float64)
        return state

    def load_acting_state(self, state: Mapping[str, Any]) -> None:
        """See ``Policy``."""
        self._load_numbers(state)
        self.load_weights(state)

    def _load_numbers(self, state: Mapping[str, Any]) -> None:
        for name, tensor in state.items():
            if name.startswith(NUMBER) and tensor[1]:
                own = name[len(NUMBER) :]
                setattr(self.agent, own, type(getattr(self.agent, own))(float(tensor[0])))

    def state_dict(self) -> dict[str, Any]:
        """See ``Policy``: the result of the agent's own ``state_dict``, else the acting state."""
        return self.agent.state_dict() if hasattr(self.agent, "state_dict") else self.acting_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``Policy``."""
        if hasattr(self.agent, "load_state_dict"):
            self.agent.load_state_dict(state)
        else:
            self.load_acting_state(state)

    def worker_state(self) -> dict[str, Any]:
        """See ``Policy``: empty."""
        return {}

    def load_worker_state(self, state: Mapping[str, Any]) -> None:
        """See ``Policy``."""


@functools.cache
def adapt_agent(agent_class: type) -> type:
    """Return a policy class that wraps an agent's class."""
    return type(
        agent_class.__name__, (SingleProcessAgent,), {"agent_class": agent_class, "__doc__": agent_class.__doc__}
    )
