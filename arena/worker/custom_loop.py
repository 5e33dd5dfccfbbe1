"""The custom loop: a policy with ``run`` gets its seat as an environment."""

import time
from typing import Any

from arena.common import registry
from arena.common.errors import BudgetSpentError, MatchOver
from arena.common.seeding import derive_seed
from arena.common.waiting import do_nothing
from arena.comms import GroupChannel
from arena.group.context import Context
from arena.group.custom import keywords_of, restore_custom, state_of_custom
from arena.group.member import Member
from arena.protocol.messages import LoggedScalar
from arena.protocol.seat import SeatRequest
from arena.worker.collector import Collector
from arena.worker.custom_player import CustomPlayer
from arena.worker.group import Group
from arena.worker.overdue import Overdue
from arena.worker.proxy import make_proxy
from arena.worker.seat import take_seat


class CustomLoopWorker(Member):
    """Passes its seat to a policy's own ``run``."""

    act_learn = False

    def __init__(self, context: Context, channel: GroupChannel, environment_rank: int) -> None:
        super().__init__(context, channel)
        self.seat = take_seat(context, environment_rank, SeatRequest(needs_infos=True))
        self.check_spaces(self.seat.offer.distinct_spaces())
        self._overdue: Overdue | None = None
        self._calls: dict[str, int] = {}  # number of calls of ``group.log``, by name
        self.group: Any = self._make_group()
        keywords = keywords_of(self)
        self._steps_at_start, self._updates_before = self._steps_before + self.steps, self.updates
        self.learns = not self.settings.frozen
        self.join(self.learns)
        self.policy = self.policy_class(make_proxy(self.seat), self.group, **keywords)
        if hasattr(self.policy, "learn"):
            self.group.learn = self.policy.learn
        self.set_up_torch()
        self._restore()
        self.seat.housekeeping = self._housekeeping

    def _make_group(self) -> Any:
        """Return the object ``group`` of the policy."""
        return Group(self.channel, self._log)

    def _log(self, scalars: dict[str, float]) -> None:
        steps, updates, now = self.steps_of_player(), self._updates_before + self.group.updates, time.time()
        for name, value in scalars.items():
            self._calls[name] = call = self._calls.get(name, 0) + 1
            self.logged.append(LoggedScalar(name, call, value, steps, updates, now))

    def _restore(self) -> None:
        restore_custom(self, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's own state, empty if it has none."""
        return state_of_custom(self, self.policy)

    def steps_of_player(self) -> int:
        """Return the player's transition steps in the run, assuming that its other workers are as far as this one."""
        return self._steps_at_start + self.seat.steps * self.channel.size

    def _report(self) -> None:
        """Report the progress of this worker's loop to the root."""
        self.steps = self.seat.steps
        self.updates = self._updates_before + self.group.updates
        self.report(pooled=False)

    def _housekeeping(self) -> None:
        if not self.housekeeping.due():
            return
        if self._overdue is not None:
            self._overdue.note_updates()
        if self.reporting.due():
            self._report()
        self.offer_evaluation()
        self.serve_write_orders()

    def serve(self) -> None:
        """Run the policy, then serve its seat until the match is over."""
        remaining = self.budget - self.context.start.steps.get(self.player, 0)
        share = max(0, -(-remaining // self.channel.size))
        try:
            if share:
                self._run(share)
            self._report()  # reports the steps with which it has finished
            self.finish()
            self._play_until_match_over()
        except MatchOver:
            pass
        self.channel.leave_group()
        self.seat.drain()  # the group is done, and the environment waits for this seat
        self._report()

    def _run(self, share: int) -> None:
        """Run the policy until it returns, or its budget binds.

        Raises:
          MatchOver: the match has ended.
        """
        players = self.context.config.players
        if self.learns or not any(players[player].learns for player in self.context.plan.groups):
            self._overdue = Overdue(self.seat, share, lambda: self.group.updates, lambda: self.group.has_model)
        try:
            self.policy.run(share)
        except BudgetSpentError:
            self.channel.begin_to_leave()
            if self.channel.rank == 0:
                text = (
                    f"run of {self.player!r} has taken {self.seat.steps:,} steps on rank {self.context.world.rank}, "
                    f"where its budget was {share:,}, and has not returned: its match is over for it; a run should "
                    "return after about as many steps as it was called with"
                )
                self.log_line("WARNING", text)
        self.seat.play_on()

    def _play_until_match_over(self) -> None:
        players: list[Any]
        if hasattr(self.policy, "act"):
            players = [CustomPlayer(self.policy) for _ in self.seat.blocks]
        else:
            self.log_line(
                "INFO",
                f"run of {self.player!r} has returned on rank {self.context.world.rank}; "
                "it has no act, so random actions are played there until the match is over",
            )
            model = registry.policy_class("random")
            copies = self.seat.offer.copies
            players = [
                model(block.spaces, None, lanes=copies * len(block.positions), seed=derive_seed(self.seed, "rest", b))
                for b, block in enumerate(self.seat.blocks)
            ]
        # The others may wait for this worker inside a collective while it waits for them at the environment.
        self.context.waiter.on_idle = self.channel.serve
        try:
            Collector(self.seat, players, deterministic=False).play(self.channel.serve)
        finally:
            self.context.waiter.on_idle = do_nothing
