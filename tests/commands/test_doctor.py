"""The doctor's verdicts on machines that this one is not: a fault that it misses costs a night in the queue."""

from pathlib import Path

import pytest

from arena.commands.doctor import checks, storage
from arena.commands.doctor.machine import Graphics, Machine
from arena.commands.doctor.measured import Library, Pings
from arena.launch import mpirun_probe
from arena.system import control_groups

LIBRARY = Library("Open MPI 5.0.11", "4.1.2", "/mpi/lib/libmpi.so.40")
LAN = ("a and b", Pings(60e-6, 117e6, 0.001))


def rank(number: int = 0, host: str = "a", **changes) -> Machine:
    facts = Machine(number, host, "Python 3.11, arena 1", tuple(range(8)), 8, None, 64_000_000_000, None, 10**9, 0.5)
    return facts._replace(**changes)


def verdicts(findings):
    return [finding.verdict for finding in findings]


def test_ranks_with_cores_of_their_own_are_fine():
    (finding,) = checks.cores([[rank(n) for n in range(8)], [rank(8, "b")]])
    assert finding.verdict == "ok"
    assert "9 ranks on 2 nodes" in finding.found


def test_a_quota_of_a_container_counts_like_missing_cores():
    """Eight cores to be seen, two cores' worth of time: ranks stand still for most of each period."""
    (finding,) = checks.cores([[rank(n, quota=2.0) for n in range(6)]])
    assert finding.verdict == "warning"
    assert "6 ranks share 2 cores by the control group's quota, 3.0 ranks a core" in finding.found


def test_ranks_bound_to_the_same_core_are_told_from_too_many_ranks():
    (finding,) = checks.cores([[rank(0, cores=(3,)), rank(1, cores=(3,)), rank(2, cores=(4,))]])
    assert "2 ranks bound to 1 core (3) of 8" in finding.found
    (finding,) = checks.cores([[rank(n) for n in range(9)]])
    assert "oversubscribed" in finding.found


def test_only_the_node_with_the_fault_is_named():
    (finding,) = checks.cores([[rank(0)], [rank(n, "b") for n in range(1, 10)], [rank(10, "c")]])
    assert finding.found.startswith("b is oversubscribed")


def test_memory_of_the_control_group_decides():
    plenty, tight = rank(), rank(host="b", memory=300_000_000, memory_limit=400_000_000)
    assert verdicts(checks.memory([[plenty], [tight]])) == ["ok"]
    assert verdicts(checks.memory([[plenty], [tight, tight]])) == ["warning"]
    (finding,) = checks.memory([[plenty], [tight] * 8])
    assert finding.verdict == "problem"
    assert "b: 0.3 GB free of the 0.4 GB that the control group allows" in finding.found


def test_a_container_with_little_shared_memory_is_found():
    assert [f.subject for f in checks.memory([[rank(shared_memory=6_000_000)] * 2])] == ["shared memory"]


def test_machines_with_other_versions_are_a_problem():
    other = rank(1, "b", software="Python 3.12, arena 1")
    software, library = checks.software([rank(), other], [LIBRARY, LIBRARY._replace(name="Open MPI 4.1.6")])
    assert software.verdict == library.verdict == "problem"
    assert "b" in software.found and "another one on b" in library.found


def test_the_slowest_pair_is_named():
    slow = ("a and c", Pings(900e-6, 110e6, -2.0))
    (finding,) = checks.messages([], [LAN, slow], is_oversubscribed=False)
    assert finding.verdict == "warning"
    assert "900.0 us" in finding.found and "a and c, the slowest of 2" in finding.found
    (finding,) = checks.clocks([LAN, slow])
    assert finding.verdict == "warning" and "2000.0 ms apart" in finding.found


def test_a_local_network_and_oversubscribed_cores_are_no_fault_of_the_messages():
    busy = ("a", Pings(400e-6, 100e6, 0.0))
    assert verdicts(checks.messages([busy], [LAN], is_oversubscribed=True)) == ["ok", "ok"]
    assert verdicts(checks.messages([busy], [], is_oversubscribed=False)) == ["warning"]


def test_cards_that_pytorch_cannot_use_are_found():
    blind = Graphics(("H200",) * 2, 0, "None")
    (finding,) = checks.graphics([("a", blind)], gpu_aware=None)
    assert finding.verdict == "warning" and "CUDA" in finding.remedy
    (finding,) = checks.graphics([("a", blind._replace(usable=2))], gpu_aware=False)
    assert finding.verdict == "ok" and "not CUDA-aware" in finding.found


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, "ok"), ({"free": 5e8}, "warning"), ({"commit": 0.4}, "warning"), ({"speed": 1e6}, "warning")],
)
def test_slow_and_full_disks_are_found(changes, verdict):
    found = storage.Storage("nfs4", 10**12, 3e8, 0.004, 0.01)._replace(**changes)
    assert checks.storage("runs", found).verdict == verdict


def test_fault_tolerance():
    assert checks.fault_tolerance("MPICH 5.0.2", None, None, tested=False).verdict == "ok"
    dummy = checks.fault_tolerance("Open MPI 4.1.6", True, None, tested=True)
    assert dummy.verdict == "warning" and dummy.found.startswith("a dummy")
    assert checks.fault_tolerance("Open MPI 5.0.11", False, 0.1, tested=True).verdict == "warning"
    assert checks.fault_tolerance("Open MPI 5.0.11", True, 0.1, tested=True).verdict == "ok"


@pytest.mark.parametrize(
    ("variables", "kind", "fits"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, "Open MPI", "Open MPI 5.0.11"),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "HYDI_CONTROL_FD": "7"}, "MPICH", "MPICH 5.0.2"),
        ({"PMI_RANK": "0", "PMI_SIZE": "4", "I_MPI_HYDRA_UUID": "x"}, "Intel MPI", "MPICH 5.0.2"),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}, "SLURM", "Open MPI 5.0.11"),
    ],
)
def test_launchers_are_told_apart(monkeypatch, variables, kind, fits):
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MPI_LOCALRANKID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = mpirun_probe.find()
    assert found is not None
    assert (found.kind, found.size) == (kind, 4)
    assert mpirun_probe.is_compatible(kind, fits)
    assert mpirun_probe.is_compatible("MPICH", "Open MPI 5.0.11") is False


def control_group(place: Path, monkeypatch, files: dict[str, str], line: str) -> None:
    """Create the files of a control group as the kernel does, with this process in it."""
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    (place / "self").write_text(line)
    monkeypatch.setattr(control_groups, "CGROUPS", place)
    monkeypatch.setattr(control_groups, "MEMBERSHIP", place / "self")


def test_limits_of_the_second_version_of_control_groups(tmp_path, monkeypatch):
    files = {
        "job/cpu.max": "150000 100000",
        "job/memory.max": "max",
        "job/memory.current": "5",
        "job/step/cpu.max": "max 100000",
        "job/step/memory.max": "4000",
        "job/step/memory.current": "1000",
    }
    control_group(tmp_path, monkeypatch, files, "0::/job/step\n")
    assert control_groups.cpu_quota() == 1.5
    assert control_groups.memory_limit() == (4000, 1000)


def test_limits_of_the_first_version_of_control_groups(tmp_path, monkeypatch):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9000",
        "memory/memory.usage_in_bytes": "2000",
    }
    # As in a container: the place is the host's, and not to be seen from inside.
    control_group(tmp_path, monkeypatch, files, "3:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n")
    assert control_groups.cpu_quota() is None
    assert control_groups.memory_limit() == (9000, 2000)


def test_the_trial_leaves_nothing_behind_and_keeps_what_was_there(tmp_path):
    with storage.trial_folder(tmp_path / "new" / "runs") as folder:
        measured = storage.measure(folder)
    assert measured.speed > 0 and measured.kind != "unknown"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").touch()
    with storage.trial_folder(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_file_in_the_way_is_an_error_of_the_system(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(FileExistsError), storage.trial_folder(tmp_path / "runs"):
        pass
