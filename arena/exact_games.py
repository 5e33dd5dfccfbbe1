"""Games small enough to be solved: what policies are worth in them is computed, not sampled.

A *place* is somewhere a player of the game chooses: an information state, or one side of a matrix game. A *strategy* is
what a policy does everywhere, for all players of the game: probabilities ``[places, actions]``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from arena.envs.interface import EntitySpaces, Environment
from arena.errors import ConfigError
from arena.league.matchmaking import zero_sum_nash

MAX_NODES = 2_000_000
"""Nodes of a game tree that are still visited: beyond, a single figure would take minutes."""


class ExactGame(Protocol):
    """A game in which everything can be computed.

    Attributes:
      spaces: what a policy sees and does, the same for all players of the game.
      zero_sum: whether two play, and one wins what the other loses.
      observations: what a policy sees at each place, ``[places, ...]``.
      masks: what is allowed there, ``[places, actions]`` of int8.
    """

    spaces: EntitySpaces
    zero_sum: bool
    observations: np.ndarray
    masks: np.ndarray

    def nash_conv(self, strategy: np.ndarray) -> float:
        """Return how much all players together would gain if each alone answered the others as well as possible."""

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """Return what one observes of somebody who draws a strategy before each game, by ``weights``, and keeps to it.

        That is mixed by how often each strategy leads to a place, which differs from a mean of probabilities.
        """

    def score(self, home: np.ndarray, away: np.ndarray) -> float:
        """Return the mean return of ``home`` when all others play ``away``, over all seats."""


class ExactMatrixGame:
    """Two choose once and at the same time; a place is a side, the row's first."""

    def __init__(self, payoffs: np.ndarray, entities: Sequence[EntitySpaces], observations: np.ndarray) -> None:
        """Take what each wins ``[2, rows, columns]``, and what each side observes ``[2, ...]``.

        Raises:
          ConfigError: the sides have different numbers of choices.
        """
        if payoffs.shape[1] != payoffs.shape[2]:
            raise ConfigError(
                f"expected as many rows as columns, so that one policy plays both; found {payoffs.shape[1:]}"
            )
        self.spaces = entities[0]
        self.observations = observations
        self.masks = np.ones(payoffs.shape[:2], np.int8)
        self._payoffs = payoffs
        self.zero_sum = bool(np.allclose(payoffs.sum(0), 0))

    def nash_conv(self, strategy: np.ndarray) -> float:
        """See ``ExactGame``; of one round."""
        (row, column), (wins, answers) = strategy, self._payoffs
        now = row @ wins @ column + row @ answers @ column
        return float((wins @ column).max() + (row @ answers).max() - now)

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """See ``ExactGame``."""
        return np.tensordot(weights / np.sum(weights), np.stack(strategies), 1)

    def score(self, home: np.ndarray, away: np.ndarray) -> float:
        """See ``ExactGame``; of one round."""
        as_row, as_column = home[0] @ self._payoffs[0] @ away[1], away[0] @ self._payoffs[1] @ home[1]
        return float(as_row + as_column) / 2


class ExactTreeGame:
    """A sequential game of OpenSpiel, whose own solvers compute the values; a place is an information state.

    Attributes:
      places: index of each information state, by OpenSpiel's name of it.
    """

    def __init__(self, game: Any, entities: Sequence[EntitySpaces]) -> None:
        """Visit the whole tree.

        Raises:
          ConfigError: players choose at the same time, the tree is too large, or somebody forgets what they did.
        """
        import pyspiel

        kind = game.get_type()
        if not kind.provides_information_state_string:
            raise ConfigError(f"{kind.short_name} has no information states, which exploitability is computed from")
        self.spaces = entities[0]
        self._game, self._players = game, game.num_players()
        self.zero_sum = self._players == 2 and kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        self.places: dict[str, int] = {}
        self._parents: list[tuple[int, int]] = []  # each place's own last place and what was chosen there
        observations: list[Sequence[float]] = []
        masks: list[Sequence[int]] = []
        tensor = "information_state_tensor" if kind.provides_information_state_tensor else "observation_tensor"
        # (state, each player's last place and choice); a stack, since trees are deeper than Python likes to recurse.
        waiting: list[tuple[Any, tuple[tuple[int, int], ...]]] = [
            (game.new_initial_state(), ((-1, -1),) * self._players)
        ]
        nodes = 0
        while waiting:
            state, last = waiting.pop()
            nodes += 1
            if nodes > MAX_NODES:
                raise ConfigError(f"{kind.short_name} has more than {MAX_NODES:,} nodes: too many to be solved here")
            if state.is_terminal():
                continue
            if state.is_chance_node():
                waiting += [(state.child(action), last) for action, _ in state.chance_outcomes()]
                continue
            if state.is_simultaneous_node():
                raise ConfigError(f"in {kind.short_name} several choose at once; expected turns, or a matrix game")
            player = state.current_player()
            place = self.places.setdefault(state.information_state_string(), len(self._parents))
            if place == len(self._parents):
                self._parents.append(last[player])
                observations.append(getattr(state, tensor)(player))
                masks.append(state.legal_actions_mask(player))
            elif self._parents[place] != last[player]:
                raise ConfigError(f"players of {kind.short_name} forget what they did; expected perfect recall")
            for action in state.legal_actions():
                now = tuple((place, action) if who == player else own for who, own in enumerate(last))
                waiting.append((state.child(action), now))
        self.observations = np.array(observations, np.float32).reshape(-1, *(entities[0].observation.shape or ()))
        self.masks = np.array(masks, np.int8)

    def nash_conv(self, strategy: np.ndarray) -> float:
        """See ``ExactGame``."""
        import pyspiel

        return float(pyspiel.nash_conv(self._game, self._tabular(strategy)))

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """See ``ExactGame``; what nobody's strategy reaches is a mean of probabilities, since it says nothing."""
        stack, shares = np.stack(strategies), np.asarray(weights, np.float64) / np.sum(weights)
        # By how much each player's own choices lead to each place, [strategies, places]; parents come before children.
        reach = np.ones(stack.shape[:2])
        for place, (parent, action) in enumerate(self._parents):
            if parent >= 0:
                reach[:, place] = reach[:, parent] * stack[:, parent, action]
        by = shares[:, None] * reach
        total = by.sum(0)
        by = np.where(total > 0, by / np.where(total > 0, total, 1), shares[:, None])
        return np.einsum("kp,kpa->pa", by, stack)

    def score(self, home: np.ndarray, away: np.ndarray) -> float:
        """See ``ExactGame``."""
        import pyspiel

        mine, others = self._tabular(home), self._tabular(away)
        returns = []
        for seat in range(self._players):
            seated = [mine if player == seat else others for player in range(self._players)]
            returns.append(pyspiel.expected_returns(self._game.new_initial_state(), seated, -1, True)[seat])
        return float(np.mean(returns))

    def _tabular(self, strategy: np.ndarray) -> Any:
        import pyspiel

        table = {}
        for name, mask, row in zip(self.places, self.masks, strategy.tolist(), strict=True):
            table[name] = [(int(action), row[action]) for action in np.flatnonzero(mask)]
        return pyspiel.TabularPolicy(table)


def exact_game(environment: Environment) -> ExactGame:
    """Return the game that an environment plays, to be solved.

    Raises:
      ConfigError: it is no matrix game and no sequential game of OpenSpiel, or too large.
    """
    entities = environment.entities
    if hasattr(environment, "payoffs"):
        return ExactMatrixGame(environment.payoffs, entities, np.stack(environment.reset().observations))
    game = getattr(environment, "game", None)
    if game is None:
        raise ConfigError(
            "exploitability can be computed in games of OpenSpiel and in matrix games; found "
            f"{type(environment).__name__}"
        )
    if hasattr(game, "row_utilities"):
        payoffs = np.stack([game.row_utilities(), game.col_utilities()])
        return ExactMatrixGame(payoffs, entities, np.stack(environment.reset().observations))
    return ExactTreeGame(game, entities)


def strategy_of(game: ExactGame, policy: Any) -> np.ndarray:
    """Return what a policy does at every place, ``[places, actions]``.

    Raises:
      ConfigError: it does not say with what probabilities it acts.
    """
    if not hasattr(policy, "probabilities"):
        raise ConfigError(
            f"{type(policy).__name__} does not say with what probabilities it acts: expected a method "
            "probabilities(observations, action_mask), as ppo and random have"
        )
    mask = game.masks if game.spaces.mask_size else None
    return np.asarray(policy.probabilities(game.observations, action_mask=mask), np.float64)


def payoff_matrix(game: ExactGame, strategies: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean return of each strategy against each, ``[K, K]``: rows against columns, seats taken in turns."""
    count = len(strategies)
    matrix = np.zeros((count, count))
    for i in range(count):
        for j in range(i + game.zero_sum, count):
            matrix[i, j] = game.score(strategies[i], strategies[j])
            matrix[j, i] = -matrix[i, j] if game.zero_sum else game.score(strategies[j], strategies[i])
    return matrix


def nash_weights(matrix: np.ndarray) -> np.ndarray:
    """Return the Nash mixture ``[K]`` of players whose mean returns against each other are ``[K, K]``.

    The mean of what the two sides of each pair say counts, so that noisy returns of a zero-sum game may be given.
    """
    return zero_sum_nash((matrix - matrix.T) / 2)[0]
