"""If these fail, ranks of a machine do not find the memory that they share, or take something else for it."""

import os
import subprocess
import sys
from pathlib import Path

from arena.system.shared_memory import MemoryName, find_memory, offer_memory

SIZE = 5000
WRITE = f"""
import sys
from arena.system.shared_memory import MemoryName, find_memory
view = find_memory(MemoryName(*map(int, sys.argv[1:])), {SIZE})
view[{SIZE} - 1] = 7
"""


def files() -> set[Path]:
    """Return the files where machines keep named shared memory."""
    return set(Path("/dev/shm").glob("arena*"))


def test_another_process_finds_what_is_offered_and_both_see_what_is_written():
    before = files()
    offered = offer_memory(SIZE)
    assert bytes(offered.view) == bytes(SIZE)
    subprocess.run([sys.executable, "-c", WRITE, *map(str, offered.name)], check=True, timeout=60)
    assert files() == before
    offered.withdraw()
    assert offered.view[SIZE - 1] == 7


def test_what_is_no_longer_offered_is_not_found_and_stays_with_those_who_have_it():
    offered = offer_memory(SIZE)
    found = find_memory(offered.name, SIZE)
    offered.withdraw()
    assert find_memory(offered.name, SIZE) is None
    offered.view[0] = 3
    assert found[0] == 3


def test_something_else_under_the_same_number_is_not_taken_for_it(tmp_path):
    """In another container a process number has another meaning."""
    path = tmp_path / "something"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file:
        other = MemoryName(os.getpid(), file.fileno(), 0, 0)
        assert find_memory(other, SIZE) is None
    assert find_memory(other._replace(process=2**22 + 1), SIZE) is None


def test_a_machine_that_has_no_more_offers_none():
    fill = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    program = f"from arena.system.shared_memory import offer_memory; {fill}; assert offer_memory({SIZE}) is None"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
