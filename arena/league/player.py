"""Players of a league: historical ones with frozen weights, and active ones, which learn."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

import numpy as np

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.text import suggestion
from arena.league.battle_payoff import BattleSharedPayoff
from arena.league.matchmaking import NashMixture, draw, loses_to_all, nearest_rating, pfsp, round_robin
from arena.league.payoff import SharedPayoff
from arena.league.rollback import OwnGames
from arena.league.settings import BattlePlayerConfig, PlayerConfig, checked

BRANCH = "branch_"  # prefix of the methods that choose an opponent


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` overridden by ``over``, recursively."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return result


class Player:
    """A member of the league.

    Attributes:
      active: whether it learns.
      category: players of one category are interchangeable in the game (a race, a role).
      payoff: the results of all games, shared by all players.
      checkpoint_path: its weights file, relative to the run directory.
      player_id: id of the player.
      total_agent_step: transition steps it has learned from.
    """

    active: ClassVar[bool]

    def __init__(
        self,
        category: str,
        payoff: SharedPayoff,
        checkpoint_path: str,
        player_id: str,
        total_agent_step: int = 0,
    ) -> None:
        if type(self) is Player:
            raise TypeError("a Player is historical or active; make one of those")
        self.category = category
        self.payoff = payoff
        self.checkpoint_path = checkpoint_path
        self.player_id = player_id
        self.total_agent_step = total_agent_step

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.player_id!r}, step {self.total_agent_step})"

    @property
    def origin(self) -> type["Player"]:
        """Class that its weights were trained as."""
        return type(self)


class HistoricalPlayer(Player):
    """A snapshot: a player with weights that never change.

    Attributes:
      parent_id: the active player that it is a snapshot of, or the first one trained from it.
    """

    active = False

    def __init__(
        self,
        category: str,
        payoff: SharedPayoff,
        checkpoint_path: str,
        player_id: str,
        total_agent_step: int = 0,
        *,
        parent_id: str,
        parent_type: type["ActivePlayer"],
    ) -> None:
        super().__init__(category, payoff, checkpoint_path, player_id, total_agent_step)
        self.parent_id = parent_id
        self._parent_type = parent_type

    @property
    def origin(self) -> type[Player]:
        """Class of its parent."""
        return self._parent_type


class ActivePlayer(Player):
    """A player that learns: it gets jobs, is frozen from time to time, and may be reset after that."""

    active = True
    Config: ClassVar[type[PlayerConfig]] = PlayerConfig
    battle: ClassVar[bool] = False
    """Whether it needs opponents."""
    founds_history: ClassVar[bool] = True
    """Whether its first weights become a historical player, so that there is an opponent from the start."""
    needs_active: ClassVar[tuple[type[Player], ...]] = ()
    """Types of active players that the league must contain for this player to have opponents."""
    needs_history: ClassVar[bool] = False
    """Whether it needs a historical player at the start of the league as an opponent."""

    def __init__(
        self,
        cfg: PlayerConfig | Mapping[str, Any],
        category: str,
        payoff: SharedPayoff,
        checkpoint_path: str,
        player_id: str,
        total_agent_step: int = 0,
        *,
        seed: int = 0,
    ) -> None:
        """See :class:`Player`; ``seed`` is the league's: the player's random stream derives from it and from its id.

        Raises:
          ConfigError: a setting is invalid.
        """
        super().__init__(category, payoff, checkpoint_path, player_id, total_agent_step)
        self.cfg = checked(self.Config, cfg, player_id)
        self._rng = np.random.Generator(np.random.PCG64(derive_seed(seed, "league", player_id)))
        self.last_enough_step = 0
        """Step at which the current phase started."""
        self.version = 0
        """Number of resets of its weights. Results of one version are no evidence about the next one."""

    @property
    def steps_between_resets(self) -> int | None:
        """Number of steps between two resets, if it is fixed: schedules then span that many steps."""
        return None

    def is_trained_enough(self) -> bool:
        """Return whether a snapshot is due. If so, the next phase starts at the current step."""
        passed = self.total_agent_step - self.last_enough_step
        if passed < self.cfg.one_phase_step or not (passed >= 2 * self.cfg.one_phase_step or self.is_strong_enough()):
            return False
        self.last_enough_step = self.total_agent_step
        return True

    def is_strong_enough(self) -> bool:
        """Return whether a phase may end before twice its shortest length."""
        return True

    def snapshot(self) -> HistoricalPlayer:
        """Return the current player as a historical player, with its own weights file."""
        return self.frozen(f"{self.player_id}_{self.total_agent_step}", self.path_beside(str(self.total_agent_step)))

    def frozen(self, player_id: str, checkpoint_path: str) -> HistoricalPlayer:
        """Return a historical player with the type, steps and parent of this player."""
        return HistoricalPlayer(
            self.category,
            self.payoff,
            checkpoint_path,
            player_id,
            self.total_agent_step,
            parent_id=self.player_id,
            parent_type=type(self),
        )

    def path_beside(self, name: str) -> str:
        """Return the path of a weights file beside this player's own."""
        own = PurePosixPath(self.checkpoint_path)
        return str(own.with_name(name + own.suffix))

    def mutate(self) -> bool:
        """Return whether the player is reset to its first weights after a snapshot."""
        return False

    def rollback_target(self) -> HistoricalPlayer | None:
        """Return the snapshot of its own that the player is to continue from; None if it has not got worse."""
        return None

    def forget_results(self) -> None:
        """Begin a new version of the player, with other weights: results of the old ones do not count for it."""
        self.version += 1

    def chance(self, probability: float) -> bool:
        """Return true with a probability, from the player's own random stream."""
        return bool(self._rng.random() < probability)

    def get_job(self) -> dict[str, Any]:
        """Return the next job: settings of acting, data and environment, merged with the configured job."""
        forward: dict[str, Any] = {}
        if self.cfg.forward.exploration is not None:
            forward["eps"] = self.cfg.forward.exploration.epsilon(self.total_agent_step)
        return merged({"forward": forward, "data": self.cfg.data, "env": self.cfg.env}, self.cfg.job)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the player, with its random state, as JSON values."""
        return {
            "total_agent_step": self.total_agent_step,
            "last_enough_step": self.last_enough_step,
            "version": self.version,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.total_agent_step = state["total_agent_step"]
        self.last_enough_step = state["last_enough_step"]
        self.version = state.get("version", 0)
        self._rng.bit_generator.state = state["rng"]


class SoloActivePlayer(ActivePlayer):
    """A player without opponents."""

    founds_history = False


class BattleActivePlayer(ActivePlayer):
    """A player that meets others. Its branches choose an opponent; a subclass adds methods ``branch_<name>``."""

    Config = BattlePlayerConfig
    cfg: BattlePlayerConfig
    payoff: BattleSharedPayoff
    battle = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See :class:`ActivePlayer`.

        Raises:
          ConfigError: a setting is invalid, or a branch is unknown.
        """
        super().__init__(*args, **kwargs)
        known = sorted(name.removeprefix(BRANCH) for name in dir(self) if name.startswith(BRANCH))
        for name in self.cfg.branch_probs:
            if name not in known:
                raise ConfigError(
                    f"{self.player_id}.branch_probs: expected some of {', '.join(known)}, "
                    f"found {name!r}{suggestion(name, known)}"
                )
        self._index: int | None = None
        self._turn = 0
        rollback = self.cfg.rollback
        self.own_games = None if rollback is None else OwnGames(rollback, self.player_id, self.payoff)
        """Results against its own snapshots; None if it is never rolled back to one."""
        self._mixture = NashMixture(self.cfg.mixture_size, self.cfg.mixture_games)

    def get_job(self, opponents: int = 1) -> dict[str, Any]:
        """Return the next kind of job, and its opponents.

        Args:
          opponents: number of opponents. A single one is ``job["opponent"]``, an id; several are a list of ids.
        """
        ids = [self.get_opponent().player_id for _ in range(opponents)]
        return super().get_job() | {"opponent": ids[0] if opponents == 1 else ids}

    def get_opponent(self) -> Player:
        """Return an opponent, chosen by one of the branches.

        Raises:
          ConfigError: the branch finds no candidate.
        """
        names, probs = list(self.cfg.branch_probs), np.array(list(self.cfg.branch_probs.values()))
        name = names[draw(np.arange(len(names)), self._rng, probs)]
        try:
            return self.payoff.roster.players[getattr(self, BRANCH + name)()]
        except ConfigError as error:
            raise ConfigError(f"{self.player_id} finds no opponent by its branch {name!r}: {error}") from error

    def reference_opponents(self) -> np.ndarray:
        """Return the indices of the players by which its strength is measured."""
        return self.payoff.roster.historical()

    def is_strong_enough(self) -> bool:
        """Return whether the lowest win rate against its reference opponents exceeds ``strong_win_rate``.

        It must have met ``strong_against`` of them, or all if there are fewer, often enough for a win rate.
        """
        reference_opponents, limit = self.reference_opponents(), self.cfg.strong_against
        met = self.payoff.latest(self.player_id, reference_opponents, limit)
        if not len(met) or len(met) < min(len(reference_opponents), limit or len(reference_opponents)):
            return False
        return self.lowest_win_rate(met) > self.cfg.strong_win_rate

    def count_own_games(self, job_info: Mapping[str, Any]) -> None:
        """Count the games of a valid report against its own snapshots, which decide whether it is rolled back."""
        if self.own_games is not None:
            self.own_games.count(job_info)

    def rollback_target(self) -> HistoricalPlayer | None:
        """See :class:`ActivePlayer`."""
        return None if self.own_games is None else self.own_games.best_snapshot()

    def forget_results(self) -> None:
        """See :class:`ActivePlayer`."""
        super().forget_results()
        if self.own_games is not None:
            self.own_games.clear()

    def win_rate(self, other: int) -> float:
        """Return the win rate against a player given by index."""
        return float(self.payoff.win_rates(self.player_id, np.array([other]))[0])

    def lowest_win_rate(self, others: np.ndarray) -> float:
        """Return the lowest win rate against players given by index; infinity without any."""
        return float(self.payoff.win_rates(self.player_id, others).min(initial=np.inf))

    def pfsp(self, candidates: np.ndarray, weighting: str) -> int:
        """Return one of the candidates, weighted by the win rates against them.

        A player that loses to all candidates meets those most that it is likeliest to learn something from.
        """
        rates = self.payoff.win_rates(self.player_id, candidates)
        if weighting != "uniform" and loses_to_all(rates):
            weighting = "variance"
        return draw(candidates, self._rng, pfsp(rates, weighting))

    def branch_uniform(self) -> int:
        """Return any other player."""
        return draw(self._others(), self._rng)

    def branch_nearest(self) -> int:
        """Return the other player with the nearest rating."""
        others, ratings = self._others(), self.payoff.ratings
        return draw(others, self._rng, nearest_rating(float(ratings.mu(self.index)), ratings.mu(others)))

    def branch_round_robin(self) -> int:
        """Return each other active player in turn."""
        active = self.payoff.roster.active()
        opponent = round_robin(self.index, active[active != self.index], self._turn)
        self._turn += 1
        return opponent

    def branch_mixture(self) -> int:
        """Return a historical player from the Nash mixture of the empirical game."""
        players, probabilities = self._mixture.probabilities(self.payoff, self.payoff.roster.historical())
        return draw(players, self._rng, probabilities)

    @property
    def index(self) -> int:
        """Index of the player in the roster."""
        if self._index is None:
            self._index = self.payoff.roster.index(self.player_id)
        return self._index

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the player, with its random state, as JSON values."""
        own_games = [] if self.own_games is None else self.own_games.state_dict()
        return super().state_dict() | {
            "turn": self._turn,
            "mixture": self._mixture.state_dict(),
            "own_games": own_games,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        super().load_state_dict(state)
        self._turn = state["turn"]
        self._mixture.load_state_dict(state["mixture"])
        if self.own_games is not None:
            self.own_games.load_state_dict(state.get("own_games", []))  # earlier versions have none

    def _others(self) -> np.ndarray:
        everybody = np.arange(len(self.payoff.roster))
        return everybody[everybody != self.index]
