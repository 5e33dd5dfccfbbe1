"""DQN, SAC and TD3 beside Stable-Baselines3 and SBX at equal settings and networks: steps per second of one core.

``python -m benchmarks.off_policy --turns 3``; tasks and settings are in ``benchmarks.peers.off_policy``. SBX needs JAX:
``pip install -r benchmarks/peers/jax.txt`` in an environment of its own, given by ``--peer-python``.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.peers import off_policy as equal_settings
from benchmarks.tools.measuring import Contestant, Figures, Table, compare, conclude, measure, options, parse
from benchmarks.tools.running import run, run_peer

PEERS = {
    "Stable-Baselines3": "sb3",
    "SBX, an update at a time": "sbx",
    "SBX, eight updates in a call": "sbx8",
}

EAGER = {"eager torch, as CleanRL computes it": "eager"}
"""The peer of SAC on discrete actions, which the libraries do not have: ``benchmarks.peers.discrete_sac``."""


def ours(name: str, steps: int) -> Figures:
    """Train by the arena in one process."""
    return run([sys.executable, "-m", "benchmarks.ours.off_policy", name, str(steps), "1"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run and return the exit code."""
    parser = options("off_policy", __doc__)
    parser.add_argument("--tasks", help="comma-separated, of " + ", ".join(equal_settings.TASKS))
    args = parse(parser, argv)
    tables: list[Table] = []
    for name in (args.tasks or ("dqn 64x64" if args.quick else ",".join(equal_settings.TASKS))).split(","):
        steps = equal_settings.TASKS[name].steps
        program, peers = ("discrete_sac", EAGER) if name.startswith("discrete") else ("off_policy", PEERS)
        peer: Callable[..., Figures] = partial(run_peer, args.peer_python, program, timeout=args.patience)
        contestants: dict[str, Contestant] = {"arena": partial(ours, name, steps)}
        contestants |= {title: partial(peer, library, name, steps, 1) for title, library in peers.items()}
        measured = measure(contestants, turns=args.turns, until=args.until)
        tables.append(
            compare(
                f"{name}: {equal_settings.TASKS[name].env}",
                measured,
                figure="steps/s",
                unit="steps per second and core",
            )
        )
    return conclude("off_policy", args, tables)


if __name__ == "__main__":
    sys.exit(main())
