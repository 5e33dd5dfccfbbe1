"""Games small enough to be solved: values of policies are computed in them, not sampled.

A *place* is a decision point of a player of the game: an information state, or one side of a matrix game. A *strategy*
is a policy's behaviour at all places, for all players of the game: probabilities ``[places, actions]``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Environment
from arena.league.matchmaking import zero_sum_nash

MAX_NODES = 2_000_000
"""Largest number of nodes of a game tree: beyond, a single figure would take minutes."""


Choice = tuple[int, int]
"""A place and the chosen action; (-1, -1) before the first choice."""


class ExactGame(Protocol):
    """Interface of a game in which values can be computed.

    Attributes:
      spaces: spaces of a policy, equal for all players of the game.
      zero_sum: whether it is a zero-sum game of two players.
      observations: observation at each place, ``[places, ...]``.
      masks: allowed actions at each place, ``[places, actions]`` of int8.
    """

    spaces: EntitySpaces
    zero_sum: bool
    observations: np.ndarray
    masks: np.ndarray

    def nash_conv(self, strategy: np.ndarray) -> float:
        """Return the sum of the players' gains from best responses to the others."""

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """Return the behaviour of a player that samples a strategy before each game, by ``weights``.

        It is weighted by the probability that each strategy reaches a place, which differs from a mean of
        probabilities.
        """

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean return of each strategy when all others play each, over all seats, ``[K, K]``."""


class ExactMatrixGame:
    """A matrix game, in which two players choose simultaneously; a place is a side, the row's first."""

    def __init__(self, payoffs: np.ndarray, entities: Sequence[EntitySpaces], observations: np.ndarray) -> None:
        """Create it from payoffs ``[2, rows, columns]`` and observations ``[2, ...]``.

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
        """See ``ExactGame``; for one round."""
        (row, column), (wins, answers) = strategy, self._payoffs
        now = row @ wins @ column + row @ answers @ column
        return float((wins @ column).max() + (row @ answers).max() - now)

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """See ``ExactGame``."""
        return np.tensordot(weights / np.sum(weights), np.stack(strategies), 1)

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """See ``ExactGame``; for one round."""
        stack = np.stack(strategies)
        wins, answers = self._payoffs
        return (stack[:, 0] @ wins @ stack[:, 1].T + (stack[:, 0] @ answers @ stack[:, 1].T).T) / 2


class ExactTreeGame:
    """A sequential game of OpenSpiel, solved by OpenSpiel's own functions; a place is an information state.

    Attributes:
      places: index of each information state, by OpenSpiel's name of it.
    """

    def __init__(self, game: Any, entities: Sequence[EntitySpaces]) -> None:
        """Visit the whole tree.

        Raises:
          ConfigError: players move simultaneously, the tree is too large, or a player has no perfect recall.
        """
        import pyspiel

        kind = game.get_type()
        if not kind.provides_information_state_string:
            raise ConfigError(f"{kind.short_name} has no information states, which exploitability is computed from")
        self.spaces = entities[0]
        self._game, self._players = game, game.num_players()
        self.zero_sum = self._players == 2 and kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        self.places: dict[str, int] = {}
        self._parents: list[Choice] = []  # of each place: the previous choice of its player
        observations: list[Sequence[float]] = []
        masks: list[Sequence[int]] = []
        ends: list[tuple[tuple[Choice, ...], float, Sequence[float]]] = []
        tensor = "information_state_tensor" if kind.provides_information_state_tensor else "observation_tensor"
        for state, last, chance in _walk(game, self.places):
            if state.is_terminal():
                ends.append((last, chance, state.returns()))
                continue
            player = state.current_player()
            place = self.places[state.information_state_string()]
            if place == len(self._parents):
                self._parents.append(last[player])
                observations.append(getattr(state, tensor)(player))
                masks.append(state.legal_actions_mask(player))
            elif self._parents[place] != last[player]:
                raise ConfigError(f"players of {kind.short_name} forget what they did; expected perfect recall")
        self.observations = np.array(observations, np.float32).reshape(-1, *(entities[0].observation.shape or ()))
        self.masks = np.array(masks, np.int8)
        last_choices, chances, returns = zip(*ends, strict=True)
        self._last_choices, self._chances = np.array(last_choices), np.array(chances)  # [ends, players, 2], [ends]
        self._returns = np.array(returns).T  # [players, ends]

    def nash_conv(self, strategy: np.ndarray) -> float:
        """See ``ExactGame``."""
        import pyspiel

        return float(pyspiel.nash_conv(self._game, self._tabular(strategy)))

    def mixture(self, strategies: Sequence[np.ndarray], weights: np.ndarray) -> np.ndarray:
        """See ``ExactGame``; at places that no strategy reaches, the mean of probabilities."""
        stack, shares = np.stack(strategies), np.asarray(weights, np.float64) / np.sum(weights)
        by = shares[:, None] * self._reach(stack)
        total = by.sum(0)
        by = np.where(total > 0, by / np.where(total > 0, total, 1), shares[:, None])
        return np.einsum("kp,kpa->pa", by, stack)

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """See ``ExactGame``; a sum over all ends of the game, of return times probability."""
        stack = np.stack(strategies)
        reach = self._reach(stack)
        # Probability of each player's own choices that lead to each end, for each strategy: [players, strategies,
        # ends].
        # ends].
        places, actions = self._last_choices.T
        own = np.where(places >= 0, reach[:, places] * stack[:, places, actions], 1.0).transpose(1, 0, 2)
        values = np.zeros((len(stack), len(stack)))
        for seat in range(self._players):
            others = np.prod([own[player] for player in range(self._players) if player != seat], 0)
            values += own[seat] * (self._chances * self._returns[seat]) @ others.T
        return values / self._players

    def _reach(self, stack: np.ndarray) -> np.ndarray:
        """Return the probability of a player's own choices that lead to each place, ``[strategies, places]``."""
        reach = np.ones(stack.shape[:2])
        for place, (parent, action) in enumerate(self._parents):  # parents come before their children
            if parent >= 0:
                reach[:, place] = reach[:, parent] * stack[:, parent, action]
        return reach

    def _tabular(self, strategy: np.ndarray) -> Any:
        import pyspiel

        table = {}
        for name, mask, row in zip(self.places, self.masks, strategy.tolist(), strict=True):
            table[name] = [(int(action), row[action]) for action in np.flatnonzero(mask)]
        return pyspiel.TabularPolicy(table)


def _walk(game: Any, places: dict[str, int]) -> Iterator[tuple[Any, tuple[Choice, ...], float]]:
    """Visit the decision nodes and the ends of a game's tree; number information states on the way.

    Yields:
      The state, each player's own last choice, and the probability that chance leads to it.

    Raises:
      ConfigError: there are too many nodes, or players move simultaneously.
    """
    name = game.get_type().short_name
    # A stack, since trees exceed Python's recursion limit.
    waiting: list[tuple[Any, tuple[Choice, ...], float]] = [
        (game.new_initial_state(), ((-1, -1),) * game.num_players(), 1.0)
    ]
    nodes = 0
    while waiting:
        state, last, chance = waiting.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise ConfigError(f"{name} has more than {MAX_NODES:,} nodes: too many to be solved here")
        if state.is_chance_node():
            waiting += [(state.child(action), last, chance * likely) for action, likely in state.chance_outcomes()]
            continue
        if state.is_simultaneous_node():
            raise ConfigError(
                f"in {name} several players act at the same time; expected a turn-based game or a matrix game"
            )
        if not state.is_terminal():
            mover = state.current_player()
            place = places.setdefault(state.information_state_string(), len(places))
            for action in state.legal_actions():
                now = tuple((place, action) if index == mover else own for index, own in enumerate(last))
                waiting.append((state.child(action), now, chance))
        yield state, last, chance


def exact_game(environment: Environment) -> ExactGame:
    """Return the game of an environment, for solving.

    Raises:
      ConfigError: it is neither a matrix game nor a sequential game of OpenSpiel, or too large.
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
    """Return a policy's behaviour at every place, ``[places, actions]``.

    Raises:
      ConfigError: it does not provide the probabilities of its actions.
    """
    if not hasattr(policy, "probabilities"):
        raise ConfigError(
            f"{type(policy).__name__} does not say with what probabilities it acts: expected a method "
            "probabilities(observations, action_mask), as ppo and random have"
        )
    mask = game.masks if game.spaces.mask_size else None
    return np.asarray(policy.probabilities(game.observations, action_mask=mask), np.float64)


def nash_weights(matrix: np.ndarray) -> np.ndarray:
    """Return the Nash mixture ``[K]`` of players, given their mean returns against each other ``[K, K]``.

    Both sides of each pair are averaged, so that noisy returns of a zero-sum game are accepted.
    """
    return zero_sum_nash((matrix - matrix.T) / 2)[0]
