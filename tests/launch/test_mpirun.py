"""Standard error of ranks arrives complete, without the lines of mpirun that add nothing."""

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from arena.launch import mpirun_output

BANNER = b"-" * 74 + b"\n"
ABORT = BANNER + b"MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\n  Errorcode: 2\n" + BANNER
EXIT = BANNER + b"prterun has exited due to process rank 0 with PID 0 on node n calling\n" + b'"abort".\n' + BANNER
SLOTS = BANNER + b"There are not enough slots available in the system to satisfy the 9\nslots\n" + BANNER
TABLE = b"-" * 80 + b"\nname   steps\n" + b"-" * 80 + b"\n"


@contextlib.contextmanager
def standard_error() -> Iterator[Callable[[], bytes]]:
    """Collect what is written to standard error; gives a function that returns it."""
    text = io.TextIOWrapper(raw := io.BytesIO())
    with contextlib.redirect_stderr(text):
        yield raw.getvalue
    text.detach()


def passed(chunks: Iterable[bytes]) -> bytes:
    """Return what the filter lets through of a stream that arrives in these pieces."""
    with standard_error() as written:
        held = b""
        for chunk in chunks:
            held = mpirun_output.filter_noise(held + chunk)
        mpirun_output.write_error(held)
        return written()


STREAMS = {
    "one message": (b"error: no such player\n" + ABORT, b"error: no such player\n"),
    "two in a row": (b"error\n" + ABORT + EXIT + b"after\n", b"error\nafter\n"),
    "in the middle of a rank's line": (b"loading ..." + ABORT + b" done\n", b"loading ... done\n"),
    "another message of mpirun": (SLOTS, SLOTS),
    "one of each": (SLOTS + EXIT + b"x", SLOTS + b"x"),
    "a rank's own ruled table": (TABLE + ABORT + TABLE, TABLE + TABLE),
    "a message that is cut off": (b"error\n" + ABORT[:120], b"error\n" + ABORT[:120]),
    "an unfinished line": (b"100 % ---", b"100 % ---"),
    "blank lines": (b"\n\n" + ABORT + b"\n\nend", b"\n\n\n\nend"),
    "nothing": (b"", b""),
}


@pytest.mark.parametrize(("stream", "expected"), STREAMS.values(), ids=STREAMS)
def test_noise_is_left_out_however_the_stream_is_cut(stream, expected):
    assert passed([stream]) == expected
    for at in range(len(stream) + 1):
        assert passed([stream[:at], stream[at:]]) == expected, f"cut at {at}"
    assert passed(stream[i : i + 1] for i in range(len(stream))) == expected


def test_a_rank_that_was_killed_is_named_with_its_part():
    death = (
        BANNER + b"prterun noticed that process rank 3 with PID 14 on node vm exited on\nsignal 9 (Killed).\n" + BANNER
    )
    with standard_error() as written:
        about = mpirun_output.RankAbout("part of rank 3", "3.out", ["step 8", "step 9"])
        mpirun_output.filter_noise(b"step\n" + death, lambda rank: about)
        told = b"the last lines of 3.out:\n  step 8\n  step 9\nerror: rank 3 on vm (part of rank 3) was killed by "
        assert (
            written() == b"step\n" + told + b"signal 9 (SIGKILL); the last checkpoint stands: continue with --resume\n"
        )


def test_a_line_that_a_rank_has_not_ended_is_shown_at_once():
    """A question or a progress bar must not wait for the next line."""
    with standard_error() as written:
        assert mpirun_output.filter_noise(b"step 3 of 10 ... --") == b"--"
        assert written() == b"step 3 of 10 ... "


def test_a_rule_of_another_length_is_no_frame_and_holds_nothing_back():
    with standard_error() as written:
        assert mpirun_output.filter_noise(TABLE) == b""
        assert written() == TABLE


def test_the_stream_is_read_to_its_end():
    reader, writer = os.pipe()
    with standard_error() as written:
        os.write(writer, b"error: rank 3 failed\n" + ABORT + EXIT + b"the end ---")
        os.close(writer)
        mpirun_output.forward_output(reader, lambda rank: "", threading.Event())
        os.close(reader)
        assert written() == b"error: rank 3 failed\nthe end ---"


@pytest.mark.parametrize(("failures", "code", "starts"), [(0, 0, 1), (2, 0, 3), (5, 213, 3)])
def test_an_mpirun_that_cannot_start_is_started_again_silently_but_not_for_ever(tmp_path, failures, code, starts):
    count, message = tmp_path / "starts", tmp_path / "message"
    message.write_bytes(BANNER + b"The PMIx server's listener thread failed to start. We cannot\ncontinue.\n" + BANNER)
    script = f"echo x >> {count}; [ $(wc -l < {count}) -gt {failures} ] && exit 0; cat {message} >&2; exit 213"
    runs = f"import sys; from arena.launch import mpirun; sys.exit(mpirun.run(['sh', '-c', {script!r}]).code)"
    done = subprocess.run([sys.executable, "-c", runs], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert len(count.read_text("utf-8").split()) == starts
    errors = done.stderr.splitlines()
    assert [line[:41] for line in errors] == ["error: Open MPI's mpirun could not start:"] * (code != 0)
    assert done.stdout.count("+ sh -c") == 1


def test_an_mpirun_that_outlives_its_ranks_is_ended():
    """Open MPI 5.0's sometimes waits for a lock of its own when several ranks have failed together."""
    # What it started ends, and stays as a zombie: it does not look.
    stuck = "import subprocess, time; rank = subprocess.Popen(['sleep', '0.5']); time.sleep(600)"
    runs = (
        "import sys; from arena.launch import mpirun; "
        f"print(mpirun.run([sys.executable, '-c', {stuck!r}], stuck_after=0.5))"
    )
    done = subprocess.run([sys.executable, "-c", runs], capture_output=True, text=True, timeout=60, check=False)
    assert "Ended(code=1, stop_requested=False, stuck=True, early=False)" in done.stdout
    assert "mpirun has not ended 0.5 s after its last rank" in done.stderr


@pytest.mark.tier("all")
def test_an_mpirun_whose_ranks_play_on_here_or_elsewhere_is_left_alone():
    busy = "import subprocess, time; rank = subprocess.Popen(['sleep', '2']); rank.wait(); time.sleep(2)"
    runs = (
        "import sys; from arena.launch import mpirun; "
        f"print(mpirun.run([sys.executable, '-c', {busy!r}], stuck_after=0.5))"
    )
    done = subprocess.run([sys.executable, "-c", runs], capture_output=True, text=True, timeout=60, check=False)
    assert "Ended(code=0, stop_requested=False, stuck=False, early=False)" in done.stdout, done.stderr
