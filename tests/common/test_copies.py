"""If these fail, copies of a simulator collide: in a port, a number or a folder."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arena.common.copies import placeholders
from arena.common.copies.placeholders import CopyPlace, fill
from arena.common.copies.ports import STEP
from arena.common.errors import ConfigError

PLACE = CopyPlace(index=7, copy=3, match=2, rank=5, seed=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{index}", 7),
        ("{5005 + index}", 5012),
        ("{ 2 * (index - copy) + rank }", 13),
        ("car-{copy} of {match}", "car-3 of 2"),
        ("{{index}} is {index}", "{index} is 7"),
        ('{"a": {"b": 1}}', '{"a": {"b": 1}}'),
        (r"\d{3}", r"\d{3}"),
        ("{:.2f} {} {a.b} {some words}", "{:.2f} {} {a.b} {some words}"),
        (5, 5),
        ([{"a": ["{copy}"]}], [{"a": [3]}]),
    ],
)
def test_texts_become_what_their_placeholders_are(text: object, value: object) -> None:
    placeholders.check(text)
    assert fill(text, PLACE) == value


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"port": {"port": None}}, "port"),
        ({"a": [{"prot": None}]}, "prot"),
        ({"a": {"port": 1}}, ""),
        ({"a": {"b": None}}, ""),
        ({"a": {"port": None, "b": 1}}, ""),
        ({"a": None, "b": "{port}"}, ""),
    ],
)
def test_a_placeholder_without_quotes_is_found(settings: dict, name: str) -> None:
    """YAML reads it as a mapping."""
    assert placeholders.unquoted(settings) == name


def test_settings_are_copied() -> None:
    settings = {"a": [1]}
    fill(settings, PLACE)["a"].append(2)
    assert settings == {"a": [1]}


def test_seeds_differ_between_copies_and_not_between_starts() -> None:
    assert fill("{seed}", PLACE) == fill("{seed}", PLACE) != fill("{seed}", PLACE.after(1))


def test_an_unknown_name_is_a_sentence() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown placeholder 'indexx' in '\{5 \+ indexx\}' \(did you mean 'index'\?\)"
    ):
        placeholders.check({"a": ["{5 + indexx}"]})
    with pytest.raises(ConfigError, match=r"expected numbers in the placeholder \{tmp \+ 1\}"):
        fill("{tmp + 1}", PLACE)


HOLD = """
import socket, sys
from arena.common.copies.placeholders import CopyPlace, fill
values = [fill(["{port}", "at {port}"], CopyPlace(index), {}) for index in range(10)]
assert all(text == f"at {port}" for port, text in values)
print(*[port for port, _ in values], fill("{tmp}", CopyPlace()), flush=True)
sys.stdin.read()
"""


def test_no_two_processes_get_a_port_and_a_killed_one_leaves_neither_ports_nor_folders() -> None:
    """Ports are only reserved, not bound, so that nothing but the reservation keeps them apart."""
    held = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        printed = [process.stdout.readline().split() for process in held if process.stdout]
        ports = [int(port) for line in printed for port in line[:-1]]
        assert len(set(ports)) == 30 and min(abs(a - b) for a in ports for b in ports if a != b) >= STEP
        folders = [Path(line[-1]) for line in printed]
        assert all(folder.is_dir() for folder in folders)
        for process in held:
            process.send_signal(signal.SIGKILL)
            process.wait()
        until = time.monotonic() + 20
        while any(folder.parent.exists() for folder in folders) and time.monotonic() < until:
            time.sleep(0.02)
        assert not any(folder.parent.exists() for folder in folders)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:
            again.bind(f"\0arena-port-{ports[0]}")
    finally:
        for process in held:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


def test_a_port_that_something_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.common.copies.ports.HIGHEST", 20_000 + 2 * STEP)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 20_000 + STEP - 1))
        listening.listen()
        assert fill("{port}", PLACE) == 20_000 + STEP
        with pytest.raises(ConfigError, match="expected a free port"):
            fill("{port}", PLACE.after(1))


def test_folders_that_a_batch_system_has_left_are_removed_by_the_next_process(tmp_path: Path) -> None:
    """A batch system kills the shell that would remove them, too. Folders in use stay, however old they are."""
    start = "import sys; from arena.common.copies.folders import new_folder; print(new_folder(0), flush=True)"
    old = time.time() - 1000
    names = ("arena-env-left", "arena-env-young", "other")
    for name in names:
        (tmp_path / name / "0-x").mkdir(parents=True)
    for name in ("arena-env-left", "other"):
        os.utime(tmp_path / name, (old, old))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holding = subprocess.Popen(
        [sys.executable, "-c", f"{start}; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert holding.stdout is not None
        used = Path(holding.stdout.readline().strip())
        os.utime(used.parent, (old, old))
        subprocess.run([sys.executable, "-c", start], check=True, timeout=60, env=environment, capture_output=True)
        assert [(tmp_path / name).exists() for name in names] == [False, True, True]
        assert used.is_dir()
    finally:
        holding.communicate()


def test_a_replaced_copy_loses_its_folder() -> None:
    first, second = (Path(fill("{tmp}", PLACE)) for _ in range(2))
    assert second.is_dir() and not first.exists() and str(PLACE.index) in second.name
    assert os.access(second, os.W_OK)
