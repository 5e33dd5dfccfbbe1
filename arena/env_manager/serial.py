"""The serial environment manager: copies of one environment, stepped one after the other in this process."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.env_manager.fault_counts import FaultCounts, OnFault
from arena.env_manager.faults import FAILURES, CopyFault, Fault, RetriesSpentError, cut_short, fault_of
from arena.env_manager.indices import EnvIds, by_id, ids_of, result_for
from arena.env_manager.remote_calls import CallResult, call_by_name
from arena.env_manager.settings import ManagerSettings
from arena.env_manager.slot import Slot, owned
from arena.envs.interface import EntitySpaces, Environment, Timestep, state_space_of


class BaseEnvManager:
    """A manager of ``env_num`` copies of an environment, which this base class steps in its own process.

    Without ``env_id``, methods take and return one item per copy, in a list. With ``env_id`` (one index or several)
    they return a dict by index, and take either that or one item per named index.

    A copy that raises or returns an invalid value is replaced: its step returns the last timestep again, truncated,
    with ``info["restarted"]`` naming the cause, and it must be reset. A reset that fails is retried. Errors of the
    caller raise before any copy has stepped.

    ``begin_step``, ``begin_reset``, ``poll``, ``pending`` and ``result`` are the asynchronous form, for an engine that
    works while copies step.

    Attributes:
      environments: the copies, in a serial manager, for a caller that steps them one by one; else empty.
      entities: names and spaces of the entities of every copy.
      turn_based: whether entities may skip steps.
      state_space: space of the environment's own global state; None if it has none.
      reads_state: whether ``state`` is called: steps and resets then provide it. False at first.
      env_num: number of copies.
      settings: timeouts and limits.
    """

    environments: list[Environment]
    entities: tuple[EntitySpaces, ...]
    turn_based: bool
    state_space: spaces.Space | None
    reads_state: bool
    env_num: int

    def __init__(
        self,
        make: Callable[[int], Environment],
        env_num: int,
        settings: ManagerSettings | None = None,
        on_fault: OnFault | None = None,
    ) -> None:
        """Construct the copies.

        Args:
          make: returns the copy with the given index.
          env_num: number of copies.
          settings: timeouts and limits; None for the defaults.
          on_fault: called with the index of a copy and its fault; gives the copy up by raising a RetriesSpentError.

        Raises:
          ConfigError: ``env_num`` is not positive, or the copies differ in their entities.
        """
        self.settings = settings or ManagerSettings()
        if env_num < 1:
            raise ConfigError(f"expected at least one environment copy, found {env_num}")
        self._makes = [make] * env_num
        self.env_num = env_num
        self.reads_state = False
        self.environments = []
        self._over = [True] * env_num
        self._closed = False
        self._faults = FaultCounts(self.settings, env_num, on_fault)
        self._seeds: list[int | None] = [None] * env_num
        self._outcomes: list[Timestep | CallResult | Exception | None] = [None] * env_num
        self._last: list[Timestep | None] = [None] * env_num
        try:
            self._start()
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise

    def _start(self) -> None:
        for env_id in range(self.env_num):
            self.environments.append(self._makes[env_id](env_id))
            environment = self.environments[env_id]
            self._check_entities(env_id, environment.entities, environment.turn_based, state_space_of(environment))
        self._slots = [Slot(self.entities) for _ in range(self.env_num)]

    def _check_entities(
        self, env_id: int, entities: Iterable[EntitySpaces], turn_based: bool, state_space: spaces.Space | None
    ) -> None:
        expected = tuple(entities)
        if not hasattr(self, "entities"):
            self.entities, self.turn_based, self.state_space = expected, turn_based, state_space
            return
        for name, found, first in (
            ("entities", expected, self.entities),
            ("state_space", state_space, self.state_space),
        ):
            if found != first:
                raise ConfigError(
                    f"expected the same {name} in every environment copy, found {found} in copy {env_id} and "
                    f"{first} in copy 0"
                )

    # Public methods -----------------------------------------------------------------------------------------------

    @property
    def env_done(self) -> list[bool]:
        """Whether each copy must be reset before it steps: its episode is over, or none has begun."""
        return list(self._over)

    @property
    def all_done(self) -> bool:
        """Whether every copy must be reset."""
        return all(self._over)

    @property
    def ready(self) -> list[int]:
        """The copies that may step now: their episode is running, and they have no pending step."""
        return [i for i in range(self.env_num) if not self._over[i] and not self.pending(i)]

    def reset(
        self,
        reset_param: Sequence[Mapping[str, Any] | None] | Mapping[int, Mapping[str, Any] | None] | None = None,
        env_id: EnvIds = None,
    ) -> Any:
        """Start an episode in all copies, or in those that ``env_id`` names.

        Args:
          reset_param: for each of them the keyword arguments of its reset (``seed``, ``options``), or None.
          env_id: index or indices of copies.

        Returns:
          Their timesteps: a list over all copies, or a dict by index where ``env_id`` is given.

        Raises:
          RetriesSpentError: a copy has failed too often.
        """
        ids = self._ids(env_id)
        params = dict.fromkeys(ids) if reset_param is None else by_id(ids, reset_param)
        for i in ids:
            unknown = sorted(set(params[i] or ()) - {"seed", "options"})
            if unknown:
                raise TypeError(f"copy {i}: expected seed and options for a reset, found {unknown[0]!r}")
            self._check_settled(i)
        for i in ids:
            param = params[i] or {}
            seed, self._seeds[i] = param.get("seed", self._seeds[i]), None
            self.begin_reset(i, seed, param.get("options"))
        self._await(ids)
        return result_for(env_id, self._collect(ids))

    def step(self, action: Sequence | Mapping[int, Sequence], env_id: EnvIds = None) -> Any:
        """Step all copies, or those that ``env_id`` names, each with one action per entity.

        With ``settings.wait_num`` the result is always a dict by index: of the copies that have finished first,
        possibly with some that began to step in an earlier call. The others are pending; no action is accepted for them
        until a result includes them. ``step({}, env_id=[])`` collects results without stepping any copy.

        Raises:
          RuntimeError: a copy's episode is over or has not begun, or its last step is still pending.
          ValueError: actions are missing, surplus or of a wrong shape.
          RetriesSpentError: a copy has failed too often.
        """
        ids = self._ids(env_id)
        actions_of = by_id(ids, action)
        for i in ids:
            self._check_settled(i)
            if self._over[i]:
                raise RuntimeError(f"environment copy {i} has no episode to step in; expected reset(env_id={i}) first")
        for i in ids:
            self._slots[i].put_actions(actions_of[i])
        for i in ids:
            self.begin_step(i)
        if self.settings.wait_num is None:
            self._await(ids)
            return result_for(env_id, self._collect(ids))
        under_way = [i for i in range(self.env_num) if self._outcomes[i] is not None or self.pending(i)]
        self._await(under_way, self.settings.wait_num, self.settings.wait_timeout)
        return self._collect([i for i in under_way if not self.pending(i)])

    def seed(self, seeds: int | Sequence[int | None] | Mapping[int, int | None], env_id: EnvIds = None) -> None:
        """Set the seed of the next reset, from which seeds after a restart derive.

        Args:
          seeds: one per copy, by position or by index; an int seeds the copy with index i with ``seeds + i``, as
            Gymnasium's vector environments do.
          env_id: index or indices of copies.
        """
        ids = self._ids(env_id)
        by_position = [seeds + i for i in ids] if isinstance(seeds, (int, np.integer)) else seeds
        for i, seed in by_id(ids, by_position).items():
            self._seeds[i] = self._faults.seeds[i] = None if seed is None else int(seed)

    def get_attr(self, name: str, env_id: EnvIds = None) -> Any:
        """Return an attribute of every copy, or of those that ``env_id`` names.

        Raises:
          AttributeError: the copies have no such attribute.
        """
        return self._call(env_id, "get_attr", name)

    def call(self, name: str, *args: Any, env_id: EnvIds = None, **kwargs: Any) -> Any:
        """Call a method of every copy, or of those that ``env_id`` names, and return the results.

        Raises:
          AttributeError: the copies have no such method.
          CallError: the method raised; the copy is unchanged.
        """
        return self._call(env_id, "call", name, args, kwargs)

    def render(self, env_id: int = 0) -> np.ndarray | None:
        """Return an RGB array of one copy, or None if it cannot render."""
        return self._call(env_id, "call", "render")[env_id]

    def close(self) -> None:
        """Close all copies, even if one of them fails to close, then raise the first failure.

        Later calls do nothing.
        """
        if self._closed:
            return
        self._closed = True
        failures = []
        for environment in self.environments:
            try:
                environment.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # The asynchronous form ----------------------------------------------------------------------------------------

    def begin_reset(self, env_id: int, seed: int | None = None, options: dict | None = None) -> None:
        """Begin the reset of a copy; ``result`` returns its timestep."""
        if seed is not None:
            self._faults.seeds[env_id] = seed
        while True:
            try:
                timestep = self.environments[env_id].reset(seed, options)
                self._slots[env_id].put(timestep)
                break
            except ConfigError:
                raise
            except FAILURES as error:
                try:
                    self.recover(env_id, fault_of(error, "reset"))
                except RetriesSpentError as spent:
                    self._outcomes[env_id] = spent
                    return
                seed = self.next_seed(env_id)
        self._over[env_id] = timestep.over
        self._outcomes[env_id] = timestep

    def begin_step(self, env_id: int, actions: Sequence[Any] | None = None) -> None:
        """Begin the step of a copy; ``result`` returns its timestep. None takes the actions in its slot."""
        slot = self._slots[env_id]
        if actions is not None:
            slot.put_actions(actions)
        try:
            timestep = self.environments[env_id].step(slot.actions())
            slot.put(timestep)
        except ConfigError:
            raise
        except FAILURES as error:
            self._outcomes[env_id] = self._failed(env_id, fault_of(error, "step"))
        else:
            self._accept(env_id, timestep)

    def pending(self, env_id: int) -> bool:
        """Return whether a copy has a pending step or reset."""
        return False

    def poll(self, timeout: float = 0.0) -> None:
        """Receive finished steps and resets; wait up to ``timeout`` seconds if there are none."""

    def result(self, env_id: int) -> Timestep:
        """Return the timestep of a copy; its arrays are valid until the next step.

        Raises:
          CopyFault: its step failed; the copy is being replaced, and must be reset.
          RetriesSpentError: the copy has failed too often.
        """
        outcome, self._outcomes[env_id] = self._outcomes[env_id], None
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Timestep), f"copy {env_id} has no timestep pending"
        return outcome

    def state(self, env_id: int) -> Any:
        """Return the environment's own global state after the latest step or reset of a copy, valid until the next."""
        return self.environments[env_id].state()  # type: ignore[attr-defined]  # a StatefulEnvironment

    def _failed(self, env_id: int, fault: Fault) -> Exception:
        try:
            self.recover(env_id, fault)
        except RetriesSpentError as spent:
            return spent
        return CopyFault(fault)

    def _accept(self, env_id: int, timestep: Timestep) -> None:
        self._over[env_id] = timestep.over
        if timestep.over:
            self.clear_faults(env_id)
        self._outcomes[env_id] = timestep

    # Faults -------------------------------------------------------------------------------------------------------

    def recover(self, env_id: int, fault: Fault) -> None:
        """Replace a copy that failed (or reset it, with ``retry: reset``); it must be reset.

        Raises:
          RetriesSpentError: the copy has failed too often.
        """
        self._over[env_id] = True
        pause = self._faults.count(env_id, fault)
        if self.settings.retry == "renew":
            self._replace(env_id, pause)

    def _replace(self, env_id: int, pause: float) -> None:
        while True:
            time.sleep(pause)
            try:
                self._renew(env_id)
                return
            except ConfigError:
                raise
            except FAILURES as error:
                pause = self._faults.count(env_id, fault_of(error, "constructor"))

    def restart(self, env_id: int, make: Callable[[int], Environment] | None = None) -> None:
        """Replace a copy that has not failed by one that ``make`` returns, now and later; it must be reset."""
        self._makes[env_id] = make or self._makes[env_id]
        self._over[env_id] = True
        self._replace(env_id, 0.0)

    def _renew(self, env_id: int) -> None:
        with contextlib.suppress(*FAILURES):
            self.environments[env_id].close()
        environment = self._makes[env_id](env_id)
        self._check_entities(env_id, environment.entities, environment.turn_based, state_space_of(environment))
        self.environments[env_id] = environment

    def clear_faults(self, env_id: int) -> None:
        """Reset the count of a copy's consecutive faults after a finished episode."""
        self._faults.clear(env_id)

    def next_seed(self, env_id: int) -> int | None:
        """Return the seed of the reset that follows a fault."""
        return self._faults.next_seed(env_id)

    # Helpers ------------------------------------------------------------------------------------------------------

    def _await(self, ids: Sequence[int], number: int | None = None, timeout: float | None = None) -> None:
        """Wait until ``number`` of these copies have finished (None: all), or one has and the timeout is over."""
        required = len(ids) if number is None else min(number, len(ids))
        until = None if timeout is None else time.monotonic() + timeout
        while (done := sum(not self.pending(i) for i in ids)) < required:
            left = 0.5 if until is None else until - time.monotonic()
            if left <= 0 and done:
                return
            self.poll(min(max(left, 0.001), 0.5))

    def _collect(self, ids: Iterable[int]) -> dict[int, Timestep]:
        """Return all timesteps; if a copy is given up, raise only afterwards, so that the others stay usable."""
        timesteps, failure = {}, None
        for i in ids:
            try:
                timesteps[i] = self._received(i)
            except RetriesSpentError as error:
                failure = error
        if failure is not None:
            raise failure
        return timesteps

    def _received(self, env_id: int) -> Timestep:
        try:
            timestep = owned(self.result(env_id))
        except CopyFault as error:
            last = self._last[env_id]
            assert last is not None
            timestep = cut_short(last, self.turn_based, {"restarted": error.fault.line})
            if self._seeds[env_id] is None:
                self._seeds[env_id] = self.next_seed(env_id)
        self._last[env_id] = timestep
        return timestep

    def _call(self, env_id: EnvIds, kind: str, name: str, args: tuple = (), kwargs: Mapping[str, Any] = {}) -> Any:
        ids = self._ids(env_id)
        for i in ids:
            self._check_settled(i)
        return result_for(env_id, self._call_copies(ids, kind, name, args, kwargs))

    def _call_copies(
        self, ids: list[int], kind: str, name: str, args: tuple, kwargs: Mapping[str, Any]
    ) -> dict[int, Any]:
        return {i: call_by_name(self.environments[i], kind, name, args, kwargs) for i in ids}

    def _check_settled(self, env_id: int) -> None:
        if self.pending(env_id) or self._outcomes[env_id] is not None:
            raise RuntimeError(
                f"environment copy {env_id} has not answered its last step; call step until it returns this copy"
            )

    def _ids(self, env_id: EnvIds) -> list[int]:
        if self._closed:
            raise RuntimeError("the environment manager is closed; make another one")
        return ids_of(env_id, self.env_num)
