"""If these fail, what a user's code prints is lost, fills the disk, or drowns the terminal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from arena.system.output_file import LIMIT, REST, FirstLines, last_lines


def run(tmp_path: Path, text: str, code: int = 0, **options: object) -> tuple[Path, str]:
    """Run a program whose output goes to a file; return the file, and what has reached the terminal."""
    program = "\n".join(
        [
            "import os, subprocess, sys, time",
            "from pathlib import Path",
            "from arena.system.output_file import OutputFile, terminal_errors",
            f"output = OutputFile(Path('out'), **{options!r})",
            text,
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    return tmp_path / "out", done.stdout + done.stderr


def test_both_streams_c_code_and_children_go_to_the_file_in_order(tmp_path: Path) -> None:
    file, terminal = run(
        tmp_path,
        "print('one'); print('two', file=sys.stderr); os.write(2, b'three\\n'); subprocess.run(['echo', 'four'])\n"
        "print('f\u00fcnf \\ud800'); print('end', end=''); print('the arena', file=terminal_errors())\n"
        "left = output.close(); print('after', left)",
    )
    assert file.read_text() == "one\ntwo\nthree\nfour\nf\u00fcnf \\ud800\nend"
    assert terminal == "after []\nthe arena\n"


def test_a_flood_is_bounded_and_keeps_its_end(tmp_path: Path) -> None:
    file, terminal = run(
        tmp_path,
        "for i in range(120_000): print(i, 'x' * 200)\noutput.update()\nprint('last')\nprint(output.close())",
        first_lines=3,
    )
    assert file.stat().st_size < LIMIT
    lines = file.read_text().splitlines()
    assert re.fullmatch(r"\[[\d,]{9,} bytes before this line were removed\]", lines[0])
    assert lines[-1] == "last" and lines[-2].startswith("119999 ") and lines[1].split()[0].isdigit()
    assert len(terminal) < 1000 and eval(terminal)[-1] == REST and len(eval(terminal)) == 4


def test_streams_that_user_code_has_closed_or_kept_do_not_fail_the_end(tmp_path: Path) -> None:
    file, terminal = run(
        tmp_path,
        "kept = sys.stdout\nkept.buffer.write(memoryview(b'bytes\\n'))\n"
        "for i in range(30_000): print(i)\ntime.sleep(0.2)\nfor i in range(30_000): print(i)\n"
        "sys.stderr.close()\noutput.close()\nprint('after', file=kept)",
    )
    assert file.read_text().startswith("bytes\n0\n1\n") and file.read_text().endswith("\n29999\n")
    assert terminal == "after\n"


def test_no_line_falls_into_the_removal_of_the_older_half(tmp_path: Path) -> None:
    """One thread prints while another shortens: without a lock, a line is lost or cut in most runs."""
    file, _ = run(
        tmp_path,
        "import arena.system.output_file as module, threading\nmodule.LIMIT, over = 4_000_000, threading.Event()\n"
        "def shorten():\n    while not over.is_set(): output.update()\n"
        "thread = threading.Thread(target=shorten); thread.start()\n"
        "for i in range(150_000): print(i, 'x' * 200)\nover.set(); thread.join()",
    )
    first, *lines = file.read_text().splitlines()
    assert first.endswith("bytes before this line were removed]")
    assert [int(line.split()[0]) for line in lines] == list(range(150_000 - len(lines), 150_000))


def test_a_fork_while_another_thread_prints_can_print(tmp_path: Path) -> None:
    """Environments of several processes fork; a lock that the other thread has then would hang the child for ever."""
    file, terminal = run(
        tmp_path,
        "import arena.system.output_file as module, threading\nmodule.LIMIT, over = 10**9, threading.Event()\n"
        "def show():\n    while not over.is_set(): print('thread')\n"
        "thread = threading.Thread(target=show); thread.start()\n"
        "children = []\n"
        "for i in range(20):\n    time.sleep(0.002)\n    child = os.fork()\n"
        "    if not child:\n        print('child', i)\n        os._exit(0)\n    children.append(child)\n"
        "until = time.monotonic() + 10\n"
        "while children and time.monotonic() < until:\n"
        "    children = [child for child in children if not os.waitpid(child, os.WNOHANG)[0]]\n"
        "for child in children: os.kill(child, 9)\n"
        "over.set(); thread.join(); output.close(); print(len(children))",
    )
    assert terminal == "0\n", "children hang"
    assert sorted(map(int, re.findall(r"child (\d+)", file.read_text()))) == list(range(20))


def test_lines_that_are_printed_before_a_crash_are_in_the_file_with_the_place(tmp_path: Path) -> None:
    file, _ = run(
        tmp_path,
        "def step():\n    print('about to fail')\n    os.abort()\n"
        "for i in range(9): print(i)\nos.write(2, b'[a:1] x\\n')\nstep()",
        code=-6,
    )
    lines = last_lines(file)
    assert lines[:6] == ["5", "6", "7", "8", "about to fail", "Fatal Python error: Aborted"]
    assert lines[6].endswith("in step") and len(lines) == 8
    assert last_lines(tmp_path / "none") == []
    run(tmp_path, "os.kill(os.getpid(), 9)", code=-9)
    assert last_lines(file) == [], "the lines of an earlier attempt explain nothing"
    assert "about to fail" in file.read_text()


def test_a_fork_writes_at_once_and_nothing_twice(tmp_path: Path) -> None:
    file, _ = run(
        tmp_path,
        "for i in range(500): print(i)\n"
        "child = os.fork()\n"
        "if not child:\n    print('in the child'); os.kill(os.getpid(), 9)\n"
        "os.waitpid(child, 0); output.close()",
    )
    assert file.read_text().split("\n") == [*map(str, range(500)), "in the child", ""]


def test_every_line_is_forwarded_where_that_is_configured(tmp_path: Path) -> None:
    file, terminal = run(tmp_path, "print('a'); print('b'); output.close()", forward="(rank 1)")
    assert file.read_text() == "a\nb\n" and terminal == "(rank 1) a\n(rank 1) b\n"


def test_a_print_that_cannot_be_written_does_not_fail(tmp_path: Path) -> None:
    file, _ = run(
        tmp_path,
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))\n"
        "print('one'); print('two'); output.update()",
    )
    assert file.read_text() == "one\n"


def test_a_process_that_prints_nothing_leaves_no_file(tmp_path: Path) -> None:
    assert not run(tmp_path, "output.close()")[0].exists()


@pytest.mark.parametrize(
    ("batches", "shown"),
    [
        ([["a", "a", "b"]], [["a  [repeated 2 times]", "b"]]),
        ([["a"], ["a"], ["b"], ["b"]], [["a"], [REST], ["b"], []]),
        ([["a", "b", "c", "d"], ["e"]], [["a", "b", "c", REST], []]),
        ([["x" * 400]], [["x" * 300 + "..."]]),
    ],
)
def test_the_first_different_lines_are_shown(batches: list[list[str]], shown: list[list[str]]) -> None:
    first = FirstLines(3)
    for lines, expected in zip(batches, shown, strict=True):
        for line in lines:
            first.add(line)
        assert first.take() == expected
