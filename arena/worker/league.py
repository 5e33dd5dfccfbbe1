"""A league player's worker: opponents on the lanes that are not its own, its weights published, restarts."""

from pathlib import Path
from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.waiting import Pacer
from arena.envs.interface import EntitySpaces
from arena.learning.weights import write_tensors
from arena.protocol.messages import Published
from arena.protocol.seat import SeatOffer
from arena.records.run_directory import RunDirectory
from arena.worker.context import Context
from arena.worker.opponents import Opponents


class LeagueClient:
    """What a worker in a league does besides playing and learning.

    Attributes:
      opponents: who plays the lanes that are not the player's own.
      restarts: how often the player was restarted so far.
      restarted_at: after how many of its transition steps that was the last time.
    """

    def __init__(
        self, context: Context, player: str, offer: SeatOffer, environment_rank: int, seed: int, horizon: int
    ) -> None:
        """Prepare a seat; see ``Opponents`` for the arguments."""
        assert context.config.league is not None
        if len(offer.distinct_spaces()) > 1:
            names = ", ".join(entity.name for entity in offer.entities)
            raise ConfigError(f"a league needs the same spaces for all entities of a side; those of {names} differ")
        self._config = context.config
        self._run = RunDirectory(context.config.run_root, context.config.name)
        self._player, self._seed = player, seed
        self._spaces: EntitySpaces = offer.entities[0]
        self._lanes = offer.copies * len(offer.entities)
        self.opponents = Opponents(
            offer,
            player,
            environment_rank,
            context.mailbox,
            context.waiter,
            self._make,
            cache=context.config.league.cache,
            horizon=horizon,
        )
        self.restarts, self.restarted_at = context.start.restarts.get(player, (0, 0))
        self._pacer = Pacer(context.config.league.publish_every)
        self._published = -1
        self._configured: int | None = None
        manager = context.config.league.manager(context.config.seed)
        self._life: int | None = manager.player(player).life

    def _make(self, policy: str, path: str) -> Any:
        """Build an opponent."""
        chosen = self._config.policies[policy]
        seed = derive_seed(self._seed, "opponent", path)
        opponent = registry.build_policy(chosen.use, self._spaces, chosen.settings, lanes=self._lanes, seed=seed)
        registry.load_policy_weights(opponent, self.weights_file(path))
        return opponent

    def weights_file(self, path: str) -> Path:
        """Return the place of a weights file that the league names."""
        return self._run.path / path

    def configure(self, policy: Any) -> None:
        """Tell the policy what the newest job says of acting and of data, where it wants to know."""
        job = self.opponents.job
        if job is None or job.id == self._configured:
            return
        self._configured = job.id
        if (job.forward or job.data) and hasattr(policy, "configure"):
            policy.configure(job.forward, job.data)

    def forget_configuration(self) -> None:
        """Tell the next policy anew."""
        self._configured = None

    def progress(self, steps: int, budget: int) -> float:
        """Return how much of its schedules the player has behind it: they start anew with each restart.

        They end with the budget, or with the phase of a player that begins anew with each.
        """
        length = self._life or budget - self.restarted_at
        return min(1.0, (steps - self.restarted_at) / max(1, length))

    def publish(self, policy: Any, steps: int, *, at_once: bool = False, finished: bool = False) -> Published | None:
        """Write the player's weights where others find them, if it is time to; return what to tell the root."""
        if not at_once and not self._pacer.due():
            return None
        directory = self._run.players / self._player / "published"
        directory.mkdir(parents=True, exist_ok=True)
        if self._published < 0:  # an earlier attempt has left files, which never change
            self._published = max((int(path.stem) for path in directory.glob("*.safetensors")), default=-1)
        self._published += 1
        path = directory / f"{self._published}.safetensors"
        write_tensors(path, policy.weights(), {"steps": str(steps)})
        return Published(self._player, str(path.relative_to(self._run.path)), steps, self.restarts, finished)
