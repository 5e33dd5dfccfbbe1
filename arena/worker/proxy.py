"""Environment proxies: the Gymnasium and PettingZoo environments that a policy's ``run`` receives.

The true environment runs in another process, maybe on another machine; each proxy passes its library's own conformance
checks. Observations are copies, as in any other environment: keep them as long as you like.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

from arena.common.errors import ConfigError
from arena.common.trees import Tree, map_tree
from arena.protocol.seat import ResetRequest, StepInfos
from arena.protocol.wire import RESET, ObservationMessage, steady_view
from arena.worker.seat import Seat


def make_proxy(seat: Seat) -> "EnvProxy | VectorEnvProxy | ParallelEnvProxy | list[ParallelEnvProxy]":
    """Return the seat as an environment for a policy.

    One entity in one copy is a ``gymnasium.Env``; one entity in several copies a ``gymnasium.vector.VectorEnv``;
    several entities a PettingZoo ``ParallelEnv``, or a list of them with several copies.

    Raises:
      ConfigError: the seat's copies have no such form; the message states which key to change.
    """
    offer = seat.offer
    several = len(offer.entities) > 1
    if offer.same_step and (several or offer.copies == 1):
        raise ConfigError(
            "env.autoreset: same_step needs a seat with one entity and num_envs > 1; "
            f"this seat has {len(offer.entities)} entities and num_envs {offer.copies}; use next_step"
        )
    if not several:
        return EnvProxy(seat) if offer.copies == 1 else VectorEnvProxy(seat)
    if offer.copies == 1:
        return ParallelEnvProxy(seat, 0)
    if offer.batches != offer.copies:
        raise ConfigError(
            f"a policy with `run` plays several entities in {offer.copies} copies one by one: "
            f"expected env.batches: {offer.copies}, found {offer.batches}"
        )
    return [ParallelEnvProxy(seat, batch) for batch in range(offer.batches)]


def put_action(view: Tree, action: Any) -> None:
    """Write one entity's action into its place in a message.

    Raises:
      ValueError: its shape differs from that of the action space.
    """
    if isinstance(view, Mapping):
        for key, sub in view.items():
            put_action(sub, action[key])
    elif isinstance(view, tuple):
        for sub, item in zip(view, action, strict=True):
            put_action(sub, item)
    else:
        shape = np.shape(action)
        # A scalar and an array with one element (Box(1,)) mean the same.
        if shape != view.shape and np.size(action) != view.size:
            raise ValueError(f"expected an action of shape {view.shape}, found {shape}: {action!r}")
        view[...] = action if shape == view.shape else np.reshape(action, view.shape)


def take_observation(tree: Tree) -> Any:
    """Return a copy of one entity's observation; scalars as NumPy scalars."""
    return map_tree(lambda view: view.copy() if view.ndim else view[()], tree)


def _place(tree: Tree, copy: int, place: int) -> Tree:
    return map_tree(lambda array: array[copy, place, ...], tree)


class EnvProxy(gymnasium.Env):
    """One entity in one copy, as a ``gymnasium.Env``.

    In a turn-based game ``step`` returns when this entity acts again. If another seat resets in the middle of the
    episode, ``step`` returns ``truncated`` with ``info["reset_by"]``, the seat's index.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own interface)

    def __init__(self, seat: Seat) -> None:
        entity = seat.offer.entities[0]
        self.observation_space = entity.observation
        self.action_space = entity.action
        self.seat = seat
        self._action = _place(seat.messages[0].actions[0], 0, 0)
        self._plain_action = self._action if isinstance(self._action, np.ndarray) and not self._action.ndim else None
        record = seat.records[0]
        self._header = record.header
        fields = (record.rewards, record.terminated, record.truncated, record.acting, record.over)
        self._reward, self._terminated, self._truncated, self._acting, self._over = map(steady_view, fields)
        self._seen = _place(record.observations[0], 0, 0)
        self._plain_seen = self._seen if isinstance(self._seen, np.ndarray) and self._seen.ndim else None
        masks = record.action_masks[0]
        self._mask = None if masks is None else masks[0, 0]
        self._side: StepInfos | None = None
        self._fresh = True  # nothing was received yet
        self._running = False

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; one that is running is truncated for every seat of the match."""
        super().reset(seed=seed)
        # This entity is done, but the others continue: wait for the end of the episode instead of truncating it.
        while not (self._fresh or self._running or self._over[0]):
            self._idle()
        side = None if seed is None and options is None else ResetRequest([seed], options, None)
        self.seat.send(0, RESET, side)
        self._receive()
        self._running, self._fresh = True, False
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step once; the class describes turn-based games."""
        if not self._running:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before step()")
        if self._plain_action is not None:
            self._plain_action[()] = action
        else:
            put_action(self._action, action)
        seat = self.seat
        seat.send(0)
        self._receive()
        seat.steps += 1
        terminated, truncated = self._terminated[0], self._truncated[0]
        if terminated or truncated:
            self._running = False
        return self._observation(), self._reward[0], terminated, truncated, self._info()

    def action_masks(self) -> np.ndarray | None:
        """Return the flags of the actions that are allowed now (a copy), or None without a mask."""
        assert not self._fresh, "call reset() first"
        return None if self._mask is None else self._mask.copy()

    def _receive(self) -> None:
        """Receive messages until this entity acts or is done."""
        record = self.seat.receive(0)
        self._side = self.seat.side(0, record) if self._header[1] else None
        while not (self._acting[0] or self._over[0] or self._terminated[0] or self._truncated[0]):
            self._idle()

    def _idle(self) -> None:
        self.seat.send(0)
        record = self.seat.receive(0)
        self._side = self.seat.side(0, record)

    def _observation(self) -> Any:
        return take_observation(self._seen) if self._plain_seen is None else self._plain_seen.copy()

    def _info(self) -> dict[str, Any]:
        info = {} if self._side is None else _info_of(self._side, 0, 0)
        if self._mask is not None:
            info["action_mask"] = self._mask.copy()
        return info

    def close(self) -> None:
        """Do nothing: the seat belongs to the worker, which closes it when the match is over."""


def _info_of(side: StepInfos | None, copy: int, position: int) -> dict[str, Any]:
    return side.infos[copy][position] if side is not None and copy in side.infos else {}


class VectorEnvProxy(gymnasium.vector.VectorEnv):
    """One entity in several copies, as a ``gymnasium.vector.VectorEnv``; both autoreset modes of the configuration.

    A reset of running episodes with ``options["reset_mask"]`` needs a match with a single seat.
    """

    def __init__(self, seat: Seat) -> None:
        offer = seat.offer
        entity = offer.entities[0]
        self.seat = seat
        self.num_envs = offer.copies
        self.single_observation_space = entity.observation
        self.single_action_space = entity.action
        self.observation_space = batch_space(entity.observation, offer.copies)
        self.action_space = batch_space(entity.action, offer.copies)
        mode = AutoresetMode.SAME_STEP if offer.same_step else AutoresetMode.NEXT_STEP
        self.metadata = {"autoreset_mode": mode}

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every copy, or in those of ``options["reset_mask"]`` (bool ``[num_envs]``)."""
        if isinstance(seed, int):
            super().reset(seed=seed)
        seeds = self._seeds(seed)
        options = dict(options) if options is not None else None
        mask = self._mask(options)
        for batch, part in enumerate(self.seat.slices):
            request = ResetRequest(
                None if seeds is None else seeds[part], options, None if mask is None else mask[part].tolist()
            )
            self.seat.send(batch, RESET, request)
        records, infos = self._receive()
        return self._observations(records), infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step every copy; rewards, terminations and truncations are ``[num_envs]``."""
        for batch, part in enumerate(self.seat.slices):
            tree = self.seat.messages[batch].actions[0]
            map_tree(lambda array, values, part=part: np.copyto(array[:, 0], _items(values, part)), tree, actions)
            self.seat.send(batch)
        records, infos = self._receive()
        rewards = np.concatenate([record.rewards[:, 0] for record in records])
        terminations = np.concatenate([record.terminated[:, 0] for record in records])
        truncations = np.concatenate([record.truncated[:, 0] for record in records])
        return self._observations(records), rewards, terminations, truncations, infos

    def action_masks(self) -> np.ndarray | None:
        """Return the flags of the actions that are allowed now, ``[num_envs, flags]``, or None."""
        masks = [mask[:, 0] for record in self._records if (mask := record.action_masks[0]) is not None]
        return np.concatenate(masks) if masks else None

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None] | None:
        if seed is None:
            return None
        seeds: list[int | None] = list(range(seed, seed + self.num_envs)) if isinstance(seed, int) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds, one for each copy, found {len(seeds)}")
        return seeds

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        if options is None or "reset_mask" not in options:
            return None
        mask = options.pop("reset_mask")
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise TypeError(f"options['reset_mask'] must be a bool array of shape ({self.num_envs},), found {mask!r}")
        if not mask.any():
            raise ValueError("options['reset_mask'] must hold at least one True")
        if self.seat.offer.seats > 1 and not mask.all():
            raise ValueError(
                "a reset of some copies needs a match with a single seat: the episodes of this match are shared by "
                f"{self.seat.offer.seats} seats; reset all copies, or let finished episodes restart by themselves"
            )
        return mask

    def _receive(self) -> tuple[list[ObservationMessage], dict[str, Any]]:
        infos: dict[str, Any] = {}
        records = []
        for batch, part in enumerate(self.seat.slices):
            record = self.seat.receive(batch)
            records.append(record)
            self.seat.steps += int(record.acting.sum())
            side = self.seat.side(batch, record)
            if side is not None:
                for copy in range(part.stop - part.start):
                    if copy in side.finals:
                        final_obs, final_info = side.finals[copy][0]
                        infos = self._add_info(
                            infos, {"final_obs": final_obs, "final_info": final_info}, part.start + copy
                        )
                    infos = self._add_info(infos, _info_of(side, copy, 0), part.start + copy)
        self._records = records
        return records, infos

    def _observations(self, records: Iterable[ObservationMessage]) -> Any:
        trees = [record.observations[0] for record in records]
        return map_tree(lambda *parts: np.concatenate([part[:, 0] for part in parts]), *trees)


def _items(values: Any, part: slice) -> Any:
    return values[part]


class ParallelEnvProxy(ParallelEnv):
    """Several entities in one copy, as a PettingZoo ``ParallelEnv``.

    In a turn-based game ``info[agent]["acting"]`` holds whether the agent's next action counts.
    """

    metadata: dict[str, Any] = {"render_modes": [], "name": "arena_seat"}  # noqa: RUF012 (PettingZoo's own interface)
    render_mode = None

    def __init__(self, seat: Seat, batch: int) -> None:
        self.seat, self._batch = seat, batch
        entities = seat.offer.entities
        self.possible_agents = [entity.name for entity in entities]
        self.agents: list[str] = []
        # Copies: spaces sample at random, and each agent of each proxy has a stream of its own.
        self.observation_spaces = {entity.name: deepcopy(entity.observation) for entity in entities}
        self.action_spaces = {entity.name: deepcopy(entity.action) for entity in entities}
        self._positions = {entity.name: position for position, entity in enumerate(entities)}
        self._homes = {
            entities[position].name: (b, place)
            for b, block in enumerate(seat.blocks)
            for place, position in enumerate(block.positions)
        }
        self._actions = {
            name: _place(seat.messages[batch].actions[b], 0, place) for name, (b, place) in self._homes.items()
        }
        self._record: ObservationMessage | None = None

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Return the agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Return the agent's action space, always the same object."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Start an episode; one that is running is truncated for every seat of the match."""
        while self._record is not None and not self.agents and not self._record.over[0]:
            self._exchange()
        side = None if seed is None and options is None else ResetRequest([seed], deepcopy(options), None)
        self.seat.send(self._batch, RESET, side)
        self._receive()
        self.agents = list(self.possible_agents)
        self._wait_for_turn()
        return self._of_agents(self._observation), self._of_agents(self._info)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        """Step once with an action for each live agent; returns when one of them acts again or all are done."""
        for agent in self.agents:
            if agent in actions:
                put_action(self._actions[agent], actions[agent])
        self._exchange()
        self._wait_for_turn()
        assert self._record is not None
        record = self._record
        terminations = self._of_agents(lambda agent: bool(record.terminated[0, self._positions[agent]]))
        truncations = self._of_agents(lambda agent: bool(record.truncated[0, self._positions[agent]]))
        rewards = self._of_agents(lambda agent: float(record.rewards[0, self._positions[agent]]))
        observations, infos = self._of_agents(self._observation), self._of_agents(self._info)
        self.agents = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return observations, rewards, terminations, truncations, infos

    def _of_agents(self, value_of: Any) -> dict[str, Any]:
        return {agent: value_of(agent) for agent in self.agents}

    def _exchange(self) -> None:
        self.seat.send(self._batch)
        self._receive()

    def _receive(self) -> None:
        record = self._record = self.seat.receive(self._batch)
        self.seat.steps += int(record.acting.sum())
        self._side = self.seat.side(self._batch, record)

    def _wait_for_turn(self) -> None:
        """Step while none of the seat's entities acts or has an outcome to report."""
        record = self._record
        assert record is not None
        while not (record.acting.any() or record.over[0] or record.terminated.any() or record.truncated.any()):
            self._exchange()

    def _observation(self, agent: str) -> Any:
        assert self._record is not None
        block, place = self._homes[agent]
        return take_observation(_place(self._record.observations[block], 0, place))

    def _info(self, agent: str) -> dict[str, Any]:
        assert self._record is not None
        block, place = self._homes[agent]
        position = self._positions[agent]
        info = dict(_info_of(self._side, 0, position))
        masks = self._record.action_masks[block]
        if masks is not None:
            info["action_mask"] = masks[0, place].copy()
        if self.seat.offer.turn_based:
            info["acting"] = bool(self._record.acting[0, position])
        return info

    def render(self) -> None:
        """Return None: the environment runs elsewhere; ``arena eval --video`` films trained players."""

    def close(self) -> None:
        """Do nothing: the seat belongs to the worker, which closes it when the match is over."""
