"""Adapter of games of OpenSpiel (Lanctot et al., 2019): sequential or simultaneous moves; chance is sampled here."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyspiel
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Timestep


class OpenSpielEnvironment:
    """A game of OpenSpiel, with one entity for each player, named ``player_0``, ``player_1``, ...

    The observation of an entity is its information state tensor (its knowledge and memory), or the observation tensor
    of games without one, in the steps in which it acts; in others it keeps its last one, zeros at first. Its mask holds
    its legal actions. Its reward is its gain; no outcome is reported, so that returns decide wins and losses.

    Attributes:
      game: the game of OpenSpiel.
      entities: see ``Environment``.
      turn_based: False if all players choose once and simultaneously (matrix games).
    """

    def __init__(self, game: Any) -> None:
        """Adapt ``game``, a ``pyspiel.Game``.

        Raises:
          ConfigError: it has infinitely many players, no tensor to observe, or chance events that no seed determines.
        """
        kind = game.get_type()
        if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
            raise ConfigError(f"{kind.short_name} is a mean field game; expected one with a player for each entity")
        if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
            raise ConfigError(
                f"{kind.short_name} samples its chance events itself; expected a game whose chance events can be seeded"
            )
        if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
            raise ConfigError(f"{kind.short_name} has no tensor to observe; expected an information state tensor")
        self.game = game
        self.turn_based = kind.information != pyspiel.GameType.Information.ONE_SHOT
        remembers = kind.provides_information_state_tensor
        try:
            shape = game.information_state_tensor_shape() if remembers else game.observation_tensor_shape()
        except pyspiel.SpielError as error:
            raise ConfigError(f"{kind.short_name} does not give the shapes of its tensors: {error}") from error
        self._shape = tuple(shape)
        self._observe = "information_state_tensor" if remembers else "observation_tensor"
        # Other games pay only at the end, so that rewards need not be read before.
        self._pays_early = kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        actions = game.num_distinct_actions()
        box = spaces.Box(-np.inf, np.inf, self._shape, np.float32)
        self.entities: tuple[EntitySpaces, ...] = tuple(
            EntitySpaces(f"player_{i}", box, spaces.Discrete(actions), actions) for i in range(game.num_players())
        )
        count = len(self.entities)
        self._everybody, self._nobody = (True,) * count, (False,) * count
        self._nothing = (0.0,) * count
        all_allowed = np.ones(actions, np.int8)
        all_allowed.flags.writeable = False
        self._all_allowed = (all_allowed,) * count
        self._blank = np.zeros(self._shape, np.float32)
        self._random = np.random.default_rng()

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Start an episode. Deals that leave no player a choice are dealt again."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        while True:
            self._state = self.game.new_initial_state()
            self._draw_chances()
            if not self._state.is_terminal():
                break
        self._observations = [self._blank] * len(self.entities)
        self._paid = list(self._state.returns()) if self._pays_early else [0.0] * len(self.entities)
        return self._turn()

    def step(self, actions: Sequence) -> Timestep:
        """Apply the action of the player to move, or of all players that move simultaneously.

        Raises:
          ValueError: an entity chose an action that its mask forbids.
        """
        state = self._state
        moves = [int(actions[i]) if acts else 0 for i, acts in enumerate(self._acting)]
        for i, acts in enumerate(self._acting):
            if acts and not self._masks[i][moves[i]]:
                raise ValueError(
                    f"{self.entities[i].name} chose action {moves[i]}, which is illegal here; its action mask allows "
                    f"{np.flatnonzero(self._masks[i]).tolist()}, and its policy must honour that"
                )
        if state.is_simultaneous_node():
            state.apply_actions(moves)
        else:
            state.apply_action(moves[state.current_player()])
        self._draw_chances()
        return self._end() if state.is_terminal() else self._turn()

    def _draw_chances(self) -> None:
        """Sample chance events until a player moves."""
        state = self._state
        while state.is_chance_node():
            level, action = self._random.random(), None
            for outcome, probability in state.chance_outcomes():
                action, level = outcome, level - probability
                if level < 0:
                    break
            state.apply_action(action)  # the last one, if probabilities sum to slightly less than 1

    def _turn(self) -> Timestep:
        """Return the observation of the entity that moves next."""
        state = self._state
        count = len(self.entities)
        if state.is_simultaneous_node():
            movers = [player for player in range(count) if state.legal_actions(player)]
        else:
            movers = [state.current_player()]
        acting, masks, observations = list(self._nobody), list(self._all_allowed), self._observations
        observe = getattr(state, self._observe)
        for player in movers:
            acting[player] = True
            observations[player] = np.array(observe(player), np.float32).reshape(self._shape)
            masks[player] = np.array(state.legal_actions_mask(player), np.int8)
        self._acting, self._masks = acting, masks
        rewards: Sequence[float] = self._nothing
        if self._pays_early:
            total = state.returns()
            rewards = [total[i] - self._paid[i] if acts else 0.0 for i, acts in enumerate(acting)]
            self._paid = [total[i] if acts else self._paid[i] for i, acts in enumerate(acting)]
        infos: list[dict] = [{} for _ in range(count)]
        return Timestep(tuple(observations), rewards, self._nobody, self._nobody, infos, acting, masks, False)

    def _end(self) -> Timestep:
        total = self._state.returns()
        rewards = [total[i] - paid for i, paid in enumerate(self._paid)]
        infos: list[dict] = [{} for _ in rewards]
        ended = (self._everybody, self._nobody)
        return Timestep(tuple(self._observations), rewards, *ended, infos, self._nobody, self._all_allowed, True)

    def render(self) -> None:
        """Return None: OpenSpiel does not render."""

    def close(self) -> None:
        """Do nothing: the game holds no resources."""
