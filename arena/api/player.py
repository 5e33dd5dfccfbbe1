"""Trained players in a program of one's own: actions for observations, without environment and without MPI."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.common.trees import leaf_dtype, leaf_shape, map_space, map_tree, tree_leaves
from arena.config.resumed import load_stored_config
from arena.config.run import RunConfig
from arena.evaluation.exported import OPEN
from arena.evaluation.players import split_entity
from arena.evaluation.served import all_names, load_players
from arena.evaluation.served_files import load_file
from arena.export.metadata import ExportError
from arena.gateway.models import LoadedPlayer
from arena.gateway.values import RowReader, leaf_reader, mask_reader
from arena.records.player_files import NEWEST
from arena.records.player_names import named_player, split_version
from arena.records.run_directory import RunDirectory


class Player:
    """A trained player: its policy with its weights, and its recurrent state between calls.

    Attributes:
      name: name of the player.
      steps: transition steps that its weights have learned from.
      observation_space, action_space: spaces of one observation and one action.
      is_recurrent: whether its actions depend on earlier observations of the episode.
    """

    def __init__(self, load: Callable[[int], LoadedPlayer]) -> None:
        """Load the player; ``load`` returns it for a number of lanes, which have a recurrent state each."""
        self._load, self._lanes = load, 1
        self._loaded = loaded = load(1)
        self.name, self.steps = loaded.name, int(loaded.version)
        self.observation_space, self.action_space = loaded.observation, loaded.action
        self.is_recurrent = bool(getattr(loaded.policy, "recurrent", False))
        self._is_greedy = bool(getattr(loaded.policy, "greedy", False))
        self._acts = loaded.policy.act
        self._dtypes = map_space(loaded.action, leaf_dtype)
        self._read = RowReader(loaded.observation, "observation")
        self._read_mask = _mask_reader(loaded, None)
        self._read_batch: tuple[int, RowReader, Callable[[Any], np.ndarray] | None] | None = None
        self.reset()

    def __repr__(self) -> str:
        """Return name, steps and spaces."""
        return f"Player({self.name!r}, steps={self.steps:,}, {self.observation_space} -> {self.action_space})"

    @property
    def policy(self) -> Any:
        """The policy object: with torch networks for the built-in policies, a runtime for an exported file."""
        return self._loaded.policy

    def reset(self) -> None:
        """Forget the episode: the next call of ``act`` is the first one of an episode, in every row of a batch."""
        self._is_fresh = True

    def act(
        self,
        observation: Any,
        *,
        action_mask: Any = None,
        start: bool | Sequence[bool] | np.ndarray = False,
        deterministic: bool = True,
        batch: bool | None = None,
    ) -> Any:
        """Return the action for an observation, or the actions for a stack of observations.

        A recurrent player keeps its state between calls: call ``reset``, or set ``start``, where an episode begins.

        Args:
          observation: a member of ``observation_space``, or a stack of N of them: arrays ``[N, ...]``, nested as the
            space, also for N = 1.
          action_mask: ``[flags]``, nonzero where an action is allowed, for environments with masks; None allows all.
            For a stack ``[N, flags]``.
          start: whether an episode begins here; for a stack one value for all rows, or ``[N]``.
          deterministic: whether to take the most likely action instead of a sampled one.
          batch: whether ``observation`` is a stack; None to see by its number of axes.

        Returns:
          An action, as the environment's ``step`` takes it; for a stack of observations a stack of them, ``[N, ...]``.

        Raises:
          ValueError: an argument does not fit the spaces; the message states what was expected and found.
          FloatingPointError: the networks' outputs are not finite.
        """
        batch = _is_stack(observation, self.observation_space) if batch is None else batch
        if batch:
            rows, read, read_mask = self._readers_of(observation)
        else:
            rows, read, read_mask = 1, self._read, self._read_mask
        observations = read(observation)
        mask = None
        if action_mask is not None:
            if read_mask is None:
                raise ValueError(f"player {self.name!r} has no action masks: expected action_mask=None")
            mask = read_mask(action_mask)
        if self._is_greedy and not deterministic:
            raise ValueError(f"player {self.name!r} is an exported file: expected deterministic=True")
        starts = lanes = None
        if self.is_recurrent:
            starts, lanes = self._starts(start, rows), slice(0, rows)
        decision = self._acts(observations, action_mask=mask, starts=starts, lanes=lanes, deterministic=deterministic)
        self._is_fresh = False
        actions = map_tree(_cast, self._dtypes, decision.actions)
        return actions if batch else map_tree(_first, actions)

    def _readers_of(self, observation: Any) -> tuple[int, RowReader, Callable[[Any], np.ndarray] | None]:
        """Return the number of rows of a stack of observations, and what reads it and its masks."""
        rows = _rows_of(observation, self.observation_space)
        if self._read_batch is None or self._read_batch[0] != rows:
            read = RowReader(self._loaded.observation, "observation", rows)
            self._read_batch = rows, read, _mask_reader(self._loaded, rows)
        return self._read_batch

    def _starts(self, start: Any, rows: int) -> np.ndarray:
        """Return ``[rows]``, whether an episode begins; with a new number of rows, the policy is built for it."""
        if rows != self._lanes:
            if not self._is_fresh:
                raise ValueError(
                    f"player {self.name!r} has a recurrent state for each row: expected {self._lanes} rows, as in the "
                    f"call before, found {rows}; call reset() first"
                )
            self._loaded, self._lanes = self._load(rows), rows
            self._acts = self._loaded.policy.act
        starts = np.array(np.broadcast_to(np.asarray(start, bool), rows))
        if self._is_fresh:
            starts[:] = True
        return starts


def _mask_reader(loaded: LoadedPlayer, rows: int | None) -> Callable[[Any], np.ndarray] | None:
    """Return a function that reads action masks, None for a player without any."""
    if not loaded.flags:
        return None
    if isinstance(loaded.action, spaces.Discrete | spaces.MultiDiscrete):
        return mask_reader(loaded.action, "action_mask", rows)
    return leaf_reader(spaces.Box(-128, 127, (loaded.flags,), np.int8), "action_mask", rows)


def _cast(dtype: np.dtype, values: Any) -> np.ndarray:
    # A copy, since policies may write their next actions into the same array.
    return np.array(values).astype(dtype, casting="same_kind", copy=False)


def _first(values: np.ndarray) -> Any:
    return values[0]


def _is_stack(observation: Any, space: spaces.Space) -> bool:
    """Return whether an observation has one axis more than a member of the space."""
    while isinstance(space, spaces.Dict | spaces.Tuple):
        is_mapping = isinstance(space, spaces.Dict)
        place: Any = next(iter(space.spaces)) if is_mapping else 0
        try:
            observation, space = observation[place], space.spaces[place]
        except (TypeError, KeyError, IndexError):
            return False  # nested in another way, which the reader reports
    try:
        return np.ndim(observation) == len(leaf_shape(space)) + 1
    except ValueError:  # rows of different lengths
        return False


def _rows_of(observation: Any, space: spaces.Space) -> int:
    """Return the length of the leading axis of a stack of observations.

    Raises:
      ValueError: there is none.
    """
    leaf = tree_leaves(observation)[0] if isinstance(space, spaces.Dict | spaces.Tuple) else observation
    shape = np.shape(leaf)
    if not shape or not shape[0]:
        raise ValueError(f"observation: expected a stack of observations, arrays [N, ...], found shape {list(shape)}")
    return shape[0]


def load(path: str | Path, player: str | None = None, at: str | int = NEWEST, *, seed: int | None = None) -> Player:
    """Return a trained player of a run, or of an exported file.

    Args:
      path: a run directory (``"runs/quickstart"``), also with the player (``"runs/quickstart:blue@best"``), or a
        file of ``arena export`` (``.onnx``, ``.pt``).
      player: its name, also with its weights (``"blue@best"``); may be omitted if only one player of the run has
        learned. An entity with an actor of its own is named ``"team.entity"``.
      at: ``"newest"``; ``"best"``, the best weights of its evaluations while training; or the transition steps of a
        snapshot.
      seed: seed of sampled actions; that of the run if None.

    Raises:
      ConfigError: there is no such run, player, snapshot or file, or the policy cannot act without its environment.
    """
    path = Path(path)
    if path.suffix in OPEN or (path.suffix and path.is_file()):
        return _load_exported(path, player, at)
    path, player = named_player(path, player)
    run = RunDirectory.existing(path)
    config = load_stored_config(run.config)
    name = _player_name(run, config) if player is None else player
    if at != NEWEST:
        name = "@".join(split_version(name, str(at), NEWEST))
    seed = config.seed if seed is None else seed
    return Player(lambda lanes: load_players(run, config, [name], lanes={name: lanes}, seed=seed)[0][0])


def _load_exported(path: Path, player: str | None, at: str | int) -> Player:
    if path.suffix not in OPEN:
        raise ConfigError(
            f"{path}: expected a run directory or a file of arena export ({', '.join(OPEN)}), found another file"
        )
    if at != NEWEST:
        raise ConfigError(f"{path}: an exported file has one version; expected at={NEWEST!r}, found {at!r}")
    try:
        loaded = load_file(path, 1)
        if player not in (None, loaded.name):
            raise ConfigError(f"{path}: expected the player {loaded.name!r}, as the file has it, found {player!r}")
        return Player(lambda lanes: load_file(path, lanes) if lanes > 1 else loaded)
    except ExportError as error:
        raise ConfigError(str(error)) from error


def _player_name(run: RunDirectory, config: RunConfig) -> str:
    """Return the name of the only player of a run that has learned.

    Raises:
      ConfigError: there are several.
    """
    names = all_names(run, config)
    learning = [name for name in names if config.players[split_entity(config, name)[0]].learns]
    if len(learning or names) > 1:
        raise ConfigError(f"{run}: expected the name of a player, since there are several: {', '.join(names)}")
    return (learning or names)[0]
