"""Models of served players: spaces, loaded version, and batches of forward passes."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from gymnasium import spaces

from arena.common.trees import Tree, leaf_dtype, map_space, map_tree
from arena.config.gateway import GatewayConfig
from arena.gateway.batcher import Batch, Batcher, ForwardResult
from arena.gateway.values import RowReader, empty_rows, mask_reader


class ActingPolicy(Protocol):
    """The part of a policy that acts; see ``arena.policies.interface.Policy``."""

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: Any = None,
        deterministic: bool = False,
    ) -> Any:
        """Return a ``Decision`` for N lanes."""


class LoadedPlayer(NamedTuple):
    """A player as passed to the server.

    Attributes:
      name: of the player.
      version: transition steps that its weights have learned from, as text.
      observation, action: its spaces.
      flags: size of its action mask, 0 if it has none.
      policy: its policy.
      platform: platform name for clients of the Open Inference Protocol.
      fixed: whether this version stays; otherwise it is the newest, and newer ones replace it.
    """

    name: str
    version: str
    observation: spaces.Space
    action: spaces.Space
    flags: int
    policy: ActingPolicy
    platform: str
    fixed: bool = False


class Model:
    """One player with one version of its weights.

    Attributes:
      name, version, observation, action, flags, platform, fixed: see ``LoadedPlayer``.
      users: number of agents of open games that act by it.
      memory: whether it is recurrent.
      deterministic: whether it takes its most likely actions unless requested otherwise.
      greedy: whether it has no others.
      on_batch: called with rows and seconds of each forward pass.
      read_observation: checks an observation and returns it as a row.
      read_mask: does the same with an action mask; None if the player has none.
    """

    def __init__(
        self,
        player: LoadedPlayer,
        config: GatewayConfig,
        *,
        deterministic: bool,
        executor: Executor | None = None,
    ) -> None:
        """Prepare the batches.

        Args:
          player: the player, with its policy.
          config: the limits, for the size of batches.
          deterministic: whether it takes its most likely actions.
          executor: see ``Batcher``.
        """
        self.name, self.version, self.platform = player.name, player.version, player.platform
        self.observation, self.action, self.flags = player.observation, player.action, player.flags
        self.fixed, self.users = player.fixed, 0
        self.deterministic = deterministic
        self.memory = bool(getattr(player.policy, "recurrent", False))
        self.greedy = bool(getattr(player.policy, "greedy", False))
        self.on_batch: Callable[[int, float], None] = lambda rows, seconds: None
        self.read_observation = RowReader(player.observation, "observation")
        self.read_mask = mask_reader(player.action, "action_mask") if player.flags else None
        self._policy, self._executor = player.policy, executor
        self._dtypes = map_space(player.action, leaf_dtype)
        self._batchers = [
            Batcher(
                partial(self._act, sure=sure),
                empty_rows(player.observation, config.max_batch),
                flags=player.flags,
                memory=self.memory,
                max_wait=config.max_wait,
                executor=executor,
            )
            for sure in (False, True)
        ]

    @property
    def stamp(self) -> str:
        """``player@version``, the mark of responses."""
        return f"{self.name}@{self.version}"

    def _act(self, batch: Batch, *, sure: bool) -> ForwardResult:
        began = time.perf_counter()
        decision = self._policy.act(
            batch.observations,
            action_mask=batch.masks,
            starts=batch.starts,
            lanes=batch.lanes,
            deterministic=sure,
        )
        self.on_batch(len(batch.starts), time.perf_counter() - began)
        actions = map_tree(
            lambda dtype, values: np.asarray(values).astype(dtype, casting="same_kind"), self._dtypes, decision.actions
        )
        return ForwardResult(actions, self.version)

    def request(
        self,
        observations: Tree,
        masks: np.ndarray | None = None,
        *,
        rows: int = 1,
        start: bool = True,
        lane: int = -1,
        deterministic: bool | None = None,
    ) -> "asyncio.Future[ForwardResult]":
        """Request the actions ``[rows, ...]`` of some rows; see ``Batcher.request`` for the arguments.

        ``deterministic`` takes the most likely actions; None means the server's default.
        """
        sure = self.deterministic if deterministic is None else deterministic
        return self._batchers[sure].request(observations, masks, rows=rows, start=start, lane=lane)

    @property
    def waiting(self) -> int:
        """Number of rows that wait for a forward pass."""
        return sum(batcher.waiting for batcher in self._batchers)

    async def replace(self, newer: LoadedPlayer) -> None:
        """Act by newer weights from the next batch on; recurrent states of open games stay."""
        if self._executor is None:
            self._exchange(newer)
        else:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._exchange, newer)

    def _exchange(self, newer: LoadedPlayer) -> None:
        if self.memory:
            old, new = cast("Any", self._policy), cast("Any", newer.policy)
            new.load_worker_state(old.worker_state())
        self._policy, self.version = newer.policy, newer.version


def seconds_of_a_batch(player: LoadedPlayer, rows: int) -> float:
    """Return the shortest time of several full batches; the first one loads and compiles what it needs."""
    row = RowReader(player.observation, "observation")(player.observation.sample())
    observations = map_tree(lambda leaf: np.repeat(leaf, rows, axis=0), row)
    masks = np.ones((rows, player.flags), np.int8) if player.flags else None
    times = []
    for deterministic in (False, True, True, True):
        began = time.perf_counter()
        player.policy.act(observations, action_mask=masks, starts=np.ones(rows, bool), deterministic=deterministic)
        times.append(time.perf_counter() - began)
    return min(times)
