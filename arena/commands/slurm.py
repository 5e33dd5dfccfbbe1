"""``arena slurm config.yaml``: write the batch script of a run, and warn before it is queued."""

import argparse
import math
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena.commands.arguments import positive
from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.config.rounds import Round
from arena.config.run import RunConfig, load_config
from arena.launch import slurm_script
from arena.launch.preflight.inspection import inspect_run
from arena.plan.assignment import Plan
from arena.plan.describe import describe
from arena.plan.layout import plan, ranks_of_match, ranks_of_run

SPARE = 1.5
"""Ratio of the requested memory to the estimate: copies and networks add to it."""


class Shape(NamedTuple):
    """Resources of a job.

    Attributes:
      nodes: number of nodes.
      tasks: number of ranks on each.
    """

    nodes: int
    tasks: int

    @property
    def ranks(self) -> int:
        """Number of ranks of the job."""
        return self.nodes * self.tasks

    @property
    def node_of_rank(self) -> list[int]:
        """Node of each rank: SLURM fills one after the other."""
        return [rank // self.tasks for rank in range(self.ranks)]


def main(argv: Sequence[str]) -> int:
    """Run ``arena slurm``; return the exit code.

    Raises:
      ConfigError: the configuration is wrong, the requested resources do not suffice, or the script exists already.
    """
    args = parse(argv)
    config = load_config(args.config, args.set).on_cores(cores_of(args))
    shape = choose(config, args.nodes, args.ntasks_per_node)
    plans = [(round_, plan(round_.rows, shape.node_of_rank, config.spares)) for round_ in _distinct(config)]
    of_rounds = inspect_run(config)
    needs = [of_rounds[round_.index] for round_, _ in plans]
    memory = max(max(need.of_nodes(planned).values()) for (_, planned), need in zip(plans, needs, strict=True))
    write(args, config, shape, memory)
    for (round_, planned), need in zip(plans, needs, strict=True):
        print(describe(planned, config, round_, needs=need))
    for warning in warnings(plans, config, shape, memory, args.mem, args.gpus_per_node):
        print(f"warning: {warning}")
    path = args.output or _default_name(config)
    print(f"written to {path}; submit it: sbatch {shlex.quote(str(path))}")
    return 0


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(
        prog="arena slurm",
        description="Write the SLURM batch script of a configuration. The job writes a checkpoint before its "
        "time limit, goes back into the queue and resumes. The command also prints which matches "
        "run on which nodes, and warns of problems before you submit.",
    )
    parser.add_argument("config", type=Path, help="the YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key, as in a run")
    add_job_options(parser)
    return parser.parse_args(argv)


def add_job_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options that choose the resources of a job and the place of its script."""
    parser.add_argument(
        "--nodes",
        type=positive,
        metavar="N",
        help="number of nodes (default: the smallest number that has room for the ranks)",
    )
    parser.add_argument(
        "--ntasks-per-node",
        type=positive,
        metavar="N",
        help="ranks on each node (default: the smallest number that is enough)",
    )
    parser.add_argument(
        "--time", default="04:00:00", help="time limit of one attempt, e.g. 8:00:00 or 1-00:00:00 (%(default)s)"
    )
    parser.add_argument(
        "--mem", type=_gigabytes, metavar="GB", help="memory of each node, e.g. 8G (default: an estimate)"
    )
    parser.add_argument("--gpus-per-node", type=positive, metavar="N")
    parser.add_argument("--cpus-per-task", type=positive, metavar="N", help="cores for each rank")
    parser.add_argument("--partition")
    parser.add_argument("--account")
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="any other option, e.g. --sbatch=--qos=long"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="path of the script (default: <name>.sbatch)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def cores_of(args: argparse.Namespace) -> int | None:
    """Return the cores of the requested job, None if the options do not determine them."""
    tasks = args.ntasks_per_node
    return None if tasks is None else (args.nodes or 1) * tasks * (args.cpus_per_task or 1)


def choose(config: RunConfig, nodes: int | None, tasks: int | None) -> Shape:
    """Return the nodes and tasks to request: as given, or the least that fits.

    The least number is that of all ranks with no match on several nodes, as far as one fits on a node.

    Raises:
      ConfigError: the requested resources do not suffice.
    """
    needed = ranks_of_run(config)
    if nodes is not None and tasks is not None:
        shape = Shape(nodes, tasks)
        if shape.ranks < needed:
            raise ConfigError(
                f"this table needs {needed} ranks, found {count_of(nodes, 'node')} x {count_of(tasks, 'task')} = "
                f"{shape.ranks}; ask for --nodes {math.ceil(needed / tasks)} or "
                f"--ntasks-per-node {math.ceil(needed / nodes)}"
            )
        return shape
    if tasks is not None:
        least = math.ceil(needed / tasks)
        shapes = [Shape(count, tasks) for count in range(least, 2 * least + 1)]
    else:
        nodes = nodes or 1
        largest = max(ranks_of_match(row) for round_ in config.round_list() for row in round_.rows)
        least = math.ceil(needed / nodes)
        shapes = [Shape(nodes, count) for count in range(least, least + largest + 1)]
    whole = (
        s
        for s in shapes
        if not any(
            split(plan(r.rows, s.node_of_rank, config.spares, evaluators=config.evaluators)) for r in _distinct(config)
        )
    )
    return next(whole, shapes[0])


def split(planned: Plan) -> list[int]:
    """Return the matches that span several nodes."""
    nodes = [assignment.node for assignment in planned.assignments]
    return [match for match, ranks in enumerate(planned.seating) if len({nodes[rank] for rank in ranks}) > 1]


def warnings(
    plans: Sequence[tuple[Round, Plan]],
    config: RunConfig,
    shape: Shape,
    memory: int,
    requested: int | None,
    gpus: int | None,
) -> list[str]:
    """Return warnings about avoidable costs.

    Args:
      plans: plan of each distinct round.
      config: configuration of the run.
      shape: resources of the job.
      memory: the estimate in MB for the fullest node.
      requested: requested GB per node.
      gpus: requested GPUs per node.
    """
    texts: list[str] = []
    for round_, planned in plans:
        apart = split(planned)
        sizes = {match: len(planned.seating[match]) for match in apart}
        if large := [match for match in apart if sizes[match] > shape.tasks]:
            texts.append(
                f"round {round_.index + 1}: a match takes {count_of(sizes[large[0]], 'rank')} and a node has "
                f"{count_of(shape.tasks, 'task')}, so that every step of {count_of(len(large), 'match', 'matches')} "
                f"crosses the network; request --ntasks-per-node {max(sizes.values())} or more"
            )
        elif apart:
            texts.append(
                f"round {round_.index + 1}: {count_of(len(apart), 'match', 'matches')} of {len(planned.matches)} on "
                "several nodes; another --ntasks-per-node would keep them whole (leave it out, and it is chosen)"
            )
        texts += _about_gpus(planned, config, gpus)
    if requested is not None and memory > 1000 * requested:
        texts.append(
            f"memory: a node needs about {memory / 1000:.1f} GB and {requested} GB are asked for: SLURM would kill the "
            f"job; request --mem {_comfortable(memory)}G"
        )
    return texts


def _about_gpus(planned: Plan, config: RunConfig, gpus: int | None) -> list[str]:
    if gpus is None:
        return []
    learning = {name for name, policy in config.players.items() if policy.learns}
    learners = Counter(planned.assignments[rank].node for rank in planned.learning(learning))
    most = max(learners.values(), default=0)
    if most > gpus:
        return [f"GPUs: {count_of(most, 'learning rank')} on a node share {count_of(gpus, 'GPU')}"]
    if most < gpus:
        return [f"GPUs: {count_of(gpus, 'GPU')} on each node for at most {count_of(most, 'learning rank')}"]
    return []


def write(args: argparse.Namespace, config: RunConfig, shape: Shape, memory: int) -> None:
    """Write the script.

    Raises:
      ConfigError: the file is there already, or cannot be written.
    """
    options = job_options(args, config.name, shape, memory)
    options += [
        "--output=%x-%j.out",
        "--dependency=singleton  # two jobs of one name would write into one run directory",
    ]
    arguments = [str(args.config), *(part for setting in args.set for part in ("--set", setting))]
    title = f"{config.name}: {shape.ranks} ranks. Written by `arena slurm`; submit it from where you are now."
    write_script(args, _default_name(config), slurm_script.ready(title, options, arguments))


def job_options(args: argparse.Namespace, name: str, shape: Shape, memory: int) -> list[str]:
    """Return the options of sbatch for the resources of a job.

    Args:
      args: the parsed options of ``add_job_options``.
      name: name of the job.
      shape: its nodes and tasks.
      memory: the estimate in MB for the fullest node.
    """
    options = [
        f"--job-name={name}",
        f"--nodes={shape.nodes}",
        f"--ntasks-per-node={shape.tasks}",
        f"--time={args.time}",
        f"--mem={args.mem or _comfortable(memory)}G",
    ]
    chosen = {name: getattr(args, name) for name in ("partition", "account", "gpus_per_node", "cpus_per_task")}
    options += [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items() if value is not None]
    return [*options, *args.sbatch]


def write_script(args: argparse.Namespace, default: Path, text: str) -> Path:
    """Write a script to the place that the options state, else to ``default``; return the place.

    Raises:
      ConfigError: the file is there already, or cannot be written.
    """
    path: Path = args.output or default
    if path.exists() and not args.force:
        raise ConfigError(f"{path} exists; choose another place with --output, or --force to write over it")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: expected a file that can be written, found: {error.strerror or error}") from error
    return path


def _distinct(config: RunConfig) -> list[Round]:
    """Return the rounds without those with the plan of an earlier one."""
    distinct: list[Round] = []
    for round_ in config.round_list():
        if all(round_.rows != earlier.rows for earlier in distinct):
            distinct.append(round_)
    return distinct


def _default_name(config: RunConfig) -> Path:
    return Path(f"{config.name}.sbatch")


def _comfortable(memory: int) -> int:
    """Return the GB to request for an estimate of ``memory`` MB."""
    return math.ceil(SPARE * memory / 1000)


def _gigabytes(text: str) -> int:
    return positive(text.upper().removesuffix("B").removesuffix("G"))
