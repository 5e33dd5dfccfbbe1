"""The custom loop of a policy with learners: it sends experience, and pulls weights."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from arena.common.errors import ConfigError
from arena.common.waiting import do_nothing
from arena.comms import SamplerChannel, SingleMember
from arena.group.context import Context
from arena.group.published import PublishedWeights, check_size
from arena.protocol.experience import SamplerOffer
from arena.worker.custom_loop import CustomLoopWorker


class ExperienceGroup:
    """The object ``group`` of a custom-loop policy with learners; see ``arena.worker.group.Group``.

    Attributes:
      rank: number of this worker among those of the player, from 0.
      size: number of workers.
      updates: number of updates behind the weights that were pulled last.
      has_model: whether a model is updated.
    """

    def __init__(self, worker: "CustomSampler", rank: int, size: int, log: Callable[[dict[str, float]], None]) -> None:
        self.rank, self.size, self._worker, self._log = rank, size, worker, log
        self.updates = 0
        self.has_model = True

    def send_experience(self, batch: Mapping[str, Any]) -> None:
        """See ``Group``."""
        self._worker.send({name: np.asarray(array) for name, array in batch.items()})

    def pull_weights(self, model: Any = None) -> bool:
        """See ``Group``."""
        return self._worker.pull(model)

    def log(self, **scalars: float) -> None:
        """See ``Group``."""
        self._log({name: float(value) for name, value in scalars.items()})

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"group.{name}: the workers of a policy with learners reduce nothing among themselves; they have "
            "send_experience, pull_weights and log"
        )


class CustomSampler(CustomLoopWorker):
    """Passes its seat to the ``run`` of a policy that learns in another rank."""

    def __init__(self, context: Context, environment_rank: int) -> None:
        plan, me = context.plan, context.me
        assert me.player is not None and me.match is not None and me.seat is not None
        places = plan.places[me.player]
        number = places.index((me.match, me.seat))
        super().__init__(context, SingleMember(number, len(places)), environment_rank)
        if not hasattr(self.policy, "weights") and not hasattr(self.policy, "state_dict"):
            raise ConfigError(
                f"policies.{self.player}.learners: expected a class with weights() or state_dict() that return what a "
                f"learner publishes, found {self.settings.use} without"
            )
        self._lag, self._sent, self._loaded, self._over, self._steps_sent = self.settings.lag, 0, -1, False, 0
        self._is_out = False
        self._weights = PublishedWeights(self.policy)
        learner = plan.learner_of(self.player, number)
        self._experience = SamplerChannel(
            context.world,
            plan.learners[self.player][learner],
            context.waiter,
            SamplerOffer(self.player, number, self.seat.offer.entities, self.seat.offer.copies, 0, None),
            self._lag,
            f"learner {learner} of {self.player!r}",
        )
        check_size(self.player, "weights", self._weights.size, self._experience.versions[0].nbytes)

    def _make_group(self) -> Any:
        return ExperienceGroup(self, self.channel.rank, self.channel.size, self._log)

    def send(self, batch: dict[str, np.ndarray]) -> None:
        """Send experience, once the lag allows it."""
        self._experience.wait_for_version(max(0, self._sent - self._lag))
        self._experience.wait_for_buffer(self._sent)
        steps, self._steps_sent = self.seat.steps - self._steps_sent, self.seat.steps
        self._experience.post_object(self._sent, (self._sent, self._version_that_acts(), steps, batch))
        self._sent += 1

    def _version_that_acts(self) -> int:
        """Return the version that was pulled last; check that its lag is allowed.

        Raises:
          ConfigError: the policy pulls too seldom, so that its version is too old.
        """
        if self._sent - max(0, self._loaded) > self._lag:
            raise ConfigError(
                f"policies.{self.player}.max_lag: expected weights at most {self._lag} updates old, found experience "
                f"{self._sent} of weights {self._loaded}; call group.pull_weights before each batch that is collected"
            )
        return max(0, self._loaded)

    def pull(self, model: Any) -> bool:
        """Load the newest version, if it has not been loaded yet."""
        version = self._experience.wait_for_version(max(0, self._sent - self._lag))
        if version == self._loaded:
            return False
        place = self._experience.version(version)
        target = model
        if target is None:
            target = self.policy
        state = self._weights.state(place)
        loads = target.load_weights if hasattr(target, "load_weights") else target.load_state_dict
        loads({name: tensor.clone() for name, tensor in state.items()})
        self._over = self._weights.header(place).over
        self._loaded = self.group.updates = version
        self._experience.release(version)
        return True

    def _play_until_match_over(self) -> None:
        self._check_out()
        self.seat.housekeeping = self._skip_versions
        try:
            super()._play_until_match_over()
        finally:
            self.context.waiter.on_idle = do_nothing

    def _check_out(self) -> None:
        if not self._is_out:
            self._is_out = True
            self._experience.check_out(self._sent)

    def _skip_versions(self) -> None:
        """Skip versions that the learner still publishes, so that its sends complete."""
        self._housekeeping()
        self._skip(self._experience.wait_for_version(self._loaded))

    def _skip(self, version: int) -> None:
        if version > self._loaded:
            self._over = self._weights.header(self._experience.version(version)).over
            self._loaded = version
            self._experience.release(version)

    def serve(self) -> None:
        """See ``CustomLoopWorker``; the learner has published its last weights when the match is over."""
        super().serve()
        self._check_out()  # the match has ended before ``run`` returned
        while not self._over:
            self._skip(self._experience.wait_for_version(self._loaded + 1))
        self._experience.close()
