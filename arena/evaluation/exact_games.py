"""Games small enough to be solved: what policies are worth in them is computed, not sampled.

A *place* is somewhere a player of the game chooses: an information state, or one side of a matrix game. A *strategy* is
what a policy does everywhere, for all players of the game: probabilities ``[places, actions]``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces, Environment
from arena.league.matchmaking import zero_sum_nash

MAX_NODES = 2_000_000
"""Nodes of a game tree that are still visited: beyond, a single figure would take minutes."""


Choice = tuple[int, int]
"""A place and the action that was chosen there; (-1, -1) before the first choice."""


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

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean return of each strategy when all others play each, over all seats, ``[K, K]``."""


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

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """See ``ExactGame``; of one round."""
        stack = np.stack(strategies)
        wins, answers = self._payoffs
        return (stack[:, 0] @ wins @ stack[:, 1].T + (stack[:, 0] @ answers @ stack[:, 1].T).T) / 2


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
        self._parents: list[Choice] = []  # of each place: its player's own last choice before
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
        """See ``ExactGame``; what nobody's strategy reaches is a mean of probabilities, since it says nothing."""
        stack, shares = np.stack(strategies), np.asarray(weights, np.float64) / np.sum(weights)
        by = shares[:, None] * self._reach(stack)
        total = by.sum(0)
        by = np.where(total > 0, by / np.where(total > 0, total, 1), shares[:, None])
        return np.einsum("kp,kpa->pa", by, stack)

    def payoff(self, strategies: Sequence[np.ndarray]) -> np.ndarray:
        """See ``ExactGame``; a sum over all ends of the game, of what it pays times how likely it is."""
        stack = np.stack(strategies)
        reach = self._reach(stack)
        # How much each player's own choices lead to each end, for each strategy: [players, strategies, ends].
        places, actions = self._last_choices.T
        own = np.where(places >= 0, reach[:, places] * stack[:, places, actions], 1.0).transpose(1, 0, 2)
        found = np.zeros((len(stack), len(stack)))
        for seat in range(self._players):
            others = np.prod([own[player] for player in range(self._players) if player != seat], 0)
            found += own[seat] * (self._chances * self._returns[seat]) @ others.T
        return found / self._players

    def _reach(self, stack: np.ndarray) -> np.ndarray:
        """Return how much a player's own choices lead to each place, ``[strategies, places]``."""
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
    """Visit the nodes of a game's tree where somebody chooses, and its ends; number information states on the way.

    Yields:
      The state, each player's own last choice, and how likely chance alone leads there.

    Raises:
      ConfigError: there are too many nodes, or several choose at once.
    """
    name = game.get_type().short_name
    # A stack, since trees are deeper than Python likes to recurse.
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
                now = tuple((place, action) if who == mover else own for who, own in enumerate(last))
                waiting.append((state.child(action), now, chance))
        yield state, last, chance


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


def nash_weights(matrix: np.ndarray) -> np.ndarray:
    """Return the Nash mixture ``[K]`` of players whose mean returns against each other are ``[K, K]``.

    The mean of what the two sides of each pair say counts, so that noisy returns of a zero-sum game may be given.
    """
    return zero_sum_nash((matrix - matrix.T) / 2)[0]
