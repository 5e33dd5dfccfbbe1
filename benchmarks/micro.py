"""Time of small operations, each compared with a floor: the fewest bytes or operations that the operation requires.

``python -m benchmarks.micro``. One process, no MPI: planning 100,000 ranks and drawing that plan, building wire
layouts, packing a record, storing an exchange in a rollout, a pass of advantage estimation, acting, learning, a report
into the records, drawing the live view.
"""

import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from arena.config.environment import EnvConfig
from arena.config.rounds import TableRow
from arena.config.table import Seat
from arena.plan.layout import plan
from benchmarks.tools.measuring import Figures, Table, compete, conclude, options, parse

Task = Callable[[], object]
COPIES, HORIZON = 8, 128


class Pair(NamedTuple):
    """An operation of the arena, and its floor.

    Attributes:
      title: name of the operation.
      ours: runs the operation once.
      floor: description of the floor.
      least: runs the floor once.
      unit: in which seconds are shown.
    """

    title: str
    ours: Task
    floor: str
    least: Task
    unit: str = "us"


_MANY_RANKS = 100_001
_NODES = [rank // 64 for rank in range(_MANY_RANKS)]
_SEATS = tuple(Seat(name, (index,)) for index, name in enumerate("aabb"))
_MANY_MATCHES = [TableRow(_SEATS, 20_000, EnvConfig(use="touchdown"))]


def planning() -> Pair:
    """Plan 100,000 ranks."""
    return Pair(
        "plan 100,001 ranks: 20,000 matches of 4 seats",
        lambda: plan(_MANY_MATCHES, _NODES),
        "a tuple of five numbers for each rank",
        lambda: [(rank, rank % 5, rank // 5, rank % 4, rank // 64) for rank in range(_MANY_RANKS)],
        "ms",
    )


def plan_diagram() -> Pair:
    """Draw the plan of 100,000 ranks."""
    from arena.plan.diagram import draw_plan

    planned = plan(_MANY_MATCHES, _NODES)
    return Pair(
        "draw the plan of 100,001 ranks",
        lambda: draw_plan(planned, {}, "many"),
        "visit every rank once",
        lambda: sum(1 for _ in planned.assignments),
        "ms",
    )


def _entity(shape: tuple[int, ...] = (4,)) -> Any:
    from arena.envs.interface import EntitySpaces

    return EntitySpaces("entity", spaces.Box(-1, 1, shape, np.float32), spaces.Discrete(2))


def layouts() -> Pair:
    """Build both messages of a seat."""
    from arena.protocol.wire import ActionMessage, blocks_of, make_observation_message

    entities = [_entity()] * 2
    record = make_observation_message(blocks_of(entities), COPIES)
    size = record.buffer.nbytes

    def build() -> None:
        blocks = blocks_of(entities)
        ActionMessage(blocks, COPIES)
        make_observation_message(blocks, COPIES)

    return Pair(
        "lay out both messages of a seat, 2 entities x 8 copies",
        build,
        f"allocate its {size} bytes",
        lambda: bytearray(size),
    )


def packing() -> Pair:
    """Write one entity's observation into its message."""
    from arena.protocol.wire import SlotWriter, blocks_of, make_observation_message

    record = make_observation_message(blocks_of([_entity()]), COPIES)
    write = SlotWriter(record.observations[0], 0, 0, "entity").write
    seen, target = np.ones(4, np.float32), np.zeros(4, np.float32)
    return Pair(
        "write an observation of 4 floats", lambda: write(seen), "copy 16 bytes", lambda: np.copyto(target, seen)
    )


def inserting() -> Pair:
    """Store an exchange."""
    from arena.experience.rollout import Rollout
    from arena.policies.on_policy.ppo import PPO

    policy = PPO(_entity(), PPO.Settings(horizon=HORIZON), lanes=COPIES, seed=0)
    rollout = Rollout(_entity(), policy.extras, horizon=HORIZON, lanes=COPIES)
    lanes, no = slice(0, COPIES), np.zeros(COPIES, bool)
    seen, rewards, yes = np.zeros((COPIES, 4), np.float32), np.ones(COPIES), np.ones(COPIES, bool)
    decision = policy.act(seen, lanes=lanes, learning=True)
    rollout.observe(0, lanes, seen, rewards, no, no, yes, yes)
    target = np.zeros((HORIZON + 1, COPIES, 4), np.float32)

    def insert() -> None:
        rollout.decide(0, lanes, decision)
        rollout.observe(1, lanes, seen, rewards, no, no, yes, no)

    def least() -> None:
        target[1] = seen

    return Pair("store an exchange of 8 lanes in a rollout", insert, "copy its observations, 128 bytes", least)


def estimating() -> Pair:
    """Estimate advantages."""
    from arena.policies.on_policy.returns import advantages

    shape = (HORIZON, COPIES)
    rewards, values = np.ones(shape, np.float32), np.ones((HORIZON + 1, COPIES), np.float32)
    no, yes = np.zeros(shape, bool), np.ones(shape, bool)
    following = np.arange(1, HORIZON + 1).repeat(COPIES).reshape(shape)
    sums = np.empty(shape, np.float32)

    return Pair(
        "advantages of 128 x 8 transitions",
        lambda: advantages(rewards, values, no, no, yes, following, gamma=0.99, gae_lambda=0.95),
        "running sums of as many numbers",
        lambda: np.cumsum(rewards, 0, out=sums),
    )


def acting() -> Pair:
    """Choose actions with PPO's default network."""
    from arena.policies.on_policy.ppo import PPO

    policy = PPO(_entity(), PPO.Settings(), lanes=COPIES, seed=0)
    seen = np.zeros((COPIES, 4), np.float32)
    first, second, head = (np.zeros(shape, np.float32) for shape in ((4, 64), (64, 64), (64, 2)))

    def least() -> None:
        np.dot(np.tanh(np.dot(np.tanh(np.dot(seen, first)), second)), head)

    return Pair(
        "PPO: choose for 8 lanes, two layers of 64",
        lambda: policy.act(seen, learning=True),
        "three products, two tanh",
        least,
    )


def learning() -> Pair:
    """Learn from one rollout of 1,024 transitions."""
    from arena.experience.rollout import Rollout
    from arena.policies.local import Alone
    from arena.policies.on_policy.ppo import PPO

    policy = PPO(_entity(), PPO.Settings(horizon=HORIZON, minibatches=4, epochs=4), lanes=COPIES, seed=0)
    rollout = Rollout(_entity(), policy.extras, horizon=HORIZON, lanes=COPIES)
    rollout.valid[:] = True
    rollout.observations[:] = np.random.default_rng(0).normal(size=rollout.observations.shape)
    x, wide, square = (np.ones(shape, np.float32) for shape in ((256, 4), (4, 64), (64, 64)))
    hidden, out = np.ones((256, 64), np.float32), np.ones((256, 64), np.float32)

    def least() -> None:
        for _ in range(16):
            for _ in range(2):  # policy and value
                np.dot(x, wide, out=out)
                np.dot(x.T, hidden)
                for _ in range(2):
                    np.dot(hidden, square, out=out)  # forward, and backward to the inputs
                np.dot(hidden.T, hidden)  # backward to the weights
                for _ in range(2):
                    np.tanh(out, out=out)

    def learn() -> None:
        policy.complete(rollout)
        policy.learn(rollout, Alone())

    return Pair(
        "PPO: learn from 1,024 transitions, 4 epochs of 4 minibatches",
        learn,
        "the products and tanh of 16 minibatches",
        least,
        "ms",
    )


def recording() -> Pair:
    """Take an environment process's report into the records."""
    from arena.protocol.messages import Episode, Episodes
    from arena.records.run_directory import RunDirectory
    from arena.records.writers.run import RecordWriter

    place = Path(tempfile.mkdtemp(prefix="arena-benchmark-"))
    run = RunDirectory(place, "run")
    run.create("name: run\n", {}, resume=False)
    records = RecordWriter(run, {}, host="here", ranks=6, tensorboard=False)
    episode = Episode(
        0, 0, 100, 1.0, ("a", "a", "b", "b"), (1.0,) * 4, (100,) * 4, (None,) * 4, False, None, time.time()
    )
    message = pickle.dumps(Episodes(0, (episode,) * 4, 400))
    return Pair(
        "root: take a report of 4 episodes",
        lambda: records.episodes(pickle.loads(message)),
        "unpickle it",
        lambda: pickle.loads(message),
    )


def live_view() -> Pair:
    """Draw the view of 30 players into a terminal's bytes."""
    import io

    from arena.records.player_statistics import PlayerInfo, PlayerStatistics
    from arena.report.progress_table import ProgressState, draw
    from arena.report.terminal import Terminal, make_console

    players = {f"player_{index}": PlayerStatistics(PlayerInfo("ppo", "#3b82f6", True, 4000)) for index in range(30)}
    for player in players.values():
        for second in range(11):
            player.progress(float(second), 0, 120 * second, second, pooled=True)
        for finished in range(250):
            player.finish(10.0, finished / 100, 20, 20)
    frame = ProgressState("run", 10.0, 0, 1, 15, 10_000, 1000.0, 0, players, 10.0)
    stream = io.StringIO()
    console = make_console(stream, Terminal(True, 120, 40))
    console.print(draw(frame, 120, 39))
    written = stream.getvalue()

    def show() -> None:
        stream.seek(0)
        console.print(draw(frame, 120, 39))

    return Pair(
        "root: draw the view of 30 players",
        show,
        "write the same characters",
        lambda: io.StringIO().write(written),
    )


PAIRS: tuple[Callable[[], Pair], ...] = (
    planning,
    plan_diagram,
    layouts,
    packing,
    inserting,
    estimating,
    acting,
    learning,
    recording,
    live_view,
)
SCALE = {"us": 1e6, "ms": 1e3}


def timed(task: Task, unit: str, seconds: float) -> Callable[[], Figures]:
    """Return a turn that calls ``task`` for a while: mean CPU time of a call, which other programs disturb least."""

    def turn() -> Figures:
        task()
        calls, began = 0, time.process_time()
        while True:
            for _ in range(1 if unit == "ms" else 20):
                task()
                calls += 1
            elapsed = time.process_time() - began
            if elapsed > seconds:
                return {unit: elapsed / calls * SCALE[unit]}

    return turn


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("micro", __doc__)
    parser.add_argument("--only", help="comma-separated, of " + ", ".join(pair.__name__ for pair in PAIRS))
    args = parse(parser, argv)
    turns = 3 if args.quick else args.turns
    tables: list[Table] = []
    for make in PAIRS:
        if args.only and make.__name__ not in args.only.split(","):
            continue
        pair = make()
        seconds = 0.1 if args.quick else 0.5
        contestants = {
            "arena": timed(pair.ours, pair.unit, seconds),
            f"floor: {pair.floor}": timed(pair.least, pair.unit, seconds),
        }
        unit = f"{pair.unit} of CPU time"
        tables.append(
            compete(
                pair.title,
                contestants,
                figure=pair.unit,
                unit=unit,
                turns=turns,
                until=args.until,
                higher_is_better=False,
            )
        )
    return conclude("micro", args, tables)


if __name__ == "__main__":
    sys.exit(main())
