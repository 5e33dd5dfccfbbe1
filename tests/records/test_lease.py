"""The lease of a run directory: two runs never write into one, and a run that is gone leaves nothing to be removed."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arena.common.errors import ConfigError
from arena.records import lease as module
from arena.records.lease import Lease, LeaseLostError, check_is_free

TAKE = """
import sys, time
from pathlib import Path
from arena.common.errors import ConfigError
from arena.records.lease import Lease
try:
    lease = Lease.take(Path(sys.argv[1]))
except ConfigError as error:
    print("refused:", error, flush=True)
else:
    print("taken", flush=True)
    time.sleep(float(sys.argv[2]))
    lease.release()
"""


def take(directory: Path, seconds: float, *prefix: str) -> subprocess.Popen[str]:
    line = [*prefix, sys.executable, "-c", TAKE, str(directory), str(seconds)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_with_who_where_and_since_when(tmp_path):
    lease = Lease.take(tmp_path)
    said, _ = take(tmp_path, 0).communicate(timeout=30)
    assert f"being written by rank 0 on {os.uname().nodename} (process {os.getpid()}, since 20" in said
    assert "rm -r" not in said
    lease.release()
    assert list(tmp_path.iterdir()) == []
    assert take(tmp_path, 0).communicate(timeout=30)[0] == "taken\n"


@pytest.mark.tier("all")
def test_of_many_starts_at_once_one_takes_it(tmp_path):
    for _ in range(3):
        starts = [take(tmp_path, 2) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            said = list(pool.map(lambda start: start.communicate(timeout=30)[0], starts))
        assert sorted(text.split()[0] for text in said) == ["refused:"] * 5 + ["taken"]
        assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_no_lease_that_counts(tmp_path):
    first = take(tmp_path, 60)
    assert first.stdout is not None and first.stdout.readline() == "taken\n"
    first.send_signal(signal.SIGKILL)  # not waited for: a zombie is no holder
    time.sleep(0.2)
    Lease.take(tmp_path).release()
    first.wait()
    first.stdout.close()


def test_a_lease_of_another_machine_counts_as_long_as_it_is_renewed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(module, "EXPIRES", 1.0)
    lease = Lease.take(tmp_path)
    text = lease.path.read_text()
    monkeypatch.setattr(module, "_machine", lambda: "another machine")
    with pytest.raises(ConfigError, match="is being written by rank 0"):
        check_is_free(tmp_path)
    lease.release()
    lease.path.write_text(text)  # as after a power failure over there
    begun = time.monotonic()
    other = Lease.take(tmp_path)
    assert 1.0 <= time.monotonic() - begun < 3.0
    other.release()


def test_a_run_whose_lease_was_taken_while_it_was_suspended_stops_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RENEW_EVERY", 0.1)
    lease = Lease.take(tmp_path)
    lease.check()
    content = json.loads(lease.path.read_text())
    lease.path.unlink()
    (tmp_path / "lease.2").write_text(json.dumps({**content, "token": "other"}))
    time.sleep(0.5)
    with pytest.raises(LeaseLostError, match="another run has taken this directory"):
        lease.check()
    lease.release()
    assert (tmp_path / "lease.2").exists()


def test_a_lease_cut_off_by_a_power_failure_is_stale(tmp_path):
    (tmp_path / "lease.3").write_text('{"token": "ab')
    Lease.take(tmp_path).release()
    assert list(tmp_path.iterdir()) == []
