"""Recovery from dead ranks: the survivors form a smaller world, save what was learned, and continue.

Every worker has a replica of its player's weights and optimizer, so nothing is kept in advance: after a death one
survivor of each player writes its replica into a checkpoint, from which the round continues like a resumed one.
"""

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from arena.common.errors import GO_ON
from arena.common.waiting import Waiter, do_nothing
from arena.comms import Mailbox, World
from arena.config.rounds import Round
from arena.config.run import RunConfig
from arena.launch.ranks.fault_tolerance_probe import fault_tolerance_obstacle
from arena.plan.assignment import Plan
from arena.plan.layout import plan, ranks_needed, reduced
from arena.protocol.checkpoints import RecoveryOrder, SurvivorState
from arena.system.output_file import terminal_errors

if TYPE_CHECKING:  # few ranks load them
    from arena.group.member import Member
    from arena.root.process import Root

OTHERS_LEAVE_WITHIN = 0.5
"""Seconds in which idle ranks end."""


class FaultTolerance:
    """Reaction of a rank to the death of others.

    Attributes:
      tolerant: whether the run continues without dead ranks.
    """

    def __init__(self, world: World, mailbox: Mailbox, waiter: Waiter, config: RunConfig) -> None:
        self._world, self._mailbox, self._waiter, self._config = world, mailbox, waiter, config
        self.tolerant = False

    def prepare(self, waiter: Waiter) -> None:
        """Test whether deaths are reported and survived by this MPI; if so, prepare for them. All ranks call it."""
        world = self._world
        revocable = world.revocable(waiter)
        why = None
        if world.rank == 0:
            why = fault_tolerance_obstacle(revocable)
            if why is not None:
                text = f"warning: fault_tolerance: ulfm: {why}; the job ends if a rank dies"
                print(text, file=sys.stderr, flush=True)
        self.tolerant = world.bcast(why, waiter) is None
        if self.tolerant:
            self._waiter.check = world.check
            if world.rank:
                # A rank that replaces a dead worker must not load torch then.
                import torch  # noqa: F401

    def is_rank_failure(self, error: Exception) -> bool:
        """Return whether an error is the death of another rank after which the run continues."""
        return self.tolerant and self._world.means_loss(error)

    def recover(self, error: Exception, save: Callable[[], None]) -> None:
        """Replace the world by the survivors and call ``save``; raise any other error again."""
        while True:
            if not self.is_rank_failure(error):
                raise error
            self._waiter.on_idle = do_nothing
            try:
                self._world.shrink(self._waiter)
                self._mailbox.cancel_all()
                if 0 in self._world.dead:
                    self._end_without_root()
                save()
            except Exception as another:
                error = another
            else:
                return

    def _end_without_root(self) -> NoReturn:
        """End this process by itself: MPI_Abort may wait for the dead rank."""
        if self._world.rank:
            leave(0)
        # The rank that is now the first reports the job's exit code, and reports it last: Open MPI 5.0's mpirun counts
        # each rank with another code than 0 twice, and with several of them may never end.
        print(f"error: the root (rank 0) has died, and ends the job; {GO_ON}", file=terminal_errors(), flush=True)
        time.sleep(OTHERS_LEAVE_WITHIN)
        leave(1)

    def recover_as_root(self, root: "Root") -> None:
        """Let the survivors save their states, and the round continue from them; to be called by the root."""
        root.record_failed_ranks()
        survivors: list[SurvivorState] = []

        def have_reported() -> bool:
            while (mail := self._mailbox.poll()) is not None:
                if isinstance(mail[1], SurvivorState):
                    survivors.append(mail[1])
                else:
                    root.handle(mail[1])
            return len(survivors) == self._world.size - 1

        self._waiter.until(have_reported, lambda: "what the survivors have")
        recovery = self._world.bcast(root.state.progress.order_recovery(survivors), self._waiter)
        self._world.barrier(self._waiter, "what the survivors write")
        planned = root.state.plan
        root.state.progress.complete_recovery(recovery, planned.learners if planned is not None else ())

    def recover_as_member(self, worker: "Member | None", log: logging.Logger) -> None:
        """Send this rank's state, and write what the root orders; ``worker`` is None on one without a player."""
        world = self._world
        log.warning("ranks %s have died; this is rank %d of %d now", world.dead, world.rank, world.size)
        self._mailbox.post(0, SurvivorState(world.rank) if worker is None else worker.survivor_state())
        recovery: RecoveryOrder = world.bcast(None, self._waiter)
        if worker is not None and recovery.writers.get(worker.player) == world.rank:
            assert recovery.order is not None
            worker.write_recovered(recovery.order)
        self._mailbox.flush(self._waiter)
        world.barrier(self._waiter, "what the survivors write")

    def planned(self, round_: Round) -> Plan:
        """Return the plan of a round with the remaining ranks."""
        nodes = self._world.nodes
        spares = max(0, self._config.spares - len(self._world.dead))
        evaluators = self._config.evaluators
        if not self._world.dead or ranks_needed(round_.rows) + spares + evaluators <= len(nodes):
            return plan(round_.rows, nodes, spares, evaluators=evaluators)
        return plan(round_.rows, nodes, replicas=reduced(round_.rows, len(nodes)))

    def finalize(self, code: int) -> None:
        """Wait for the other ranks at the end of the run; after a death, end this process there."""
        try:
            # The root draws its plots first. Some libraries poll without a pause in MPI's own waits.
            self._world.barrier(self._waiter, "the root's summary")
        except Exception as error:
            if not self.is_rank_failure(error):
                raise
            self._world.revoke()  # all work is done
            leave(code)
        if self._world.dead:
            leave(code)


def leave(code: int) -> NoReturn:
    """End this process without MPI_Finalize, which may wait for dead ranks without end."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
