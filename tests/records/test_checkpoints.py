"""Checkpoints and tensor files: damaged ones never count, whole ones always come back bit for bit."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.records.checkpoints import Checkpoints
from arena.tensors.weights import read_metadata, read_tensors, write_tensors


def make(checkpoints: Checkpoints, number: int) -> Path:
    path = checkpoints.begin(number)
    write_tensors(path / "blue.safetensors", {"weight": np.full((2, 3), number, np.float32)})
    write_tensors(path / "blue.0.safetensors", {"random": np.arange(5, dtype=np.uint8)})
    return checkpoints.complete(number, {"steps": {"blue": 100 * number}, "updates": {"blue": number}})


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_tensors_come_back_with_their_shape_dtype_and_bits(tmp_path):
    tensors = {
        "scalar": np.array(7, np.int64),
        "nan": np.array([np.nan, np.inf, -0.0], np.float64),
        "bytes": np.arange(256, dtype=np.uint8),
        "flags": np.array([True, False]),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "empty": np.zeros((0, 4), np.float32),
        "half": np.array([1.5], np.float16),
    }
    path = tmp_path / "blue.safetensors"
    write_tensors(path, tensors, {"player": "blue"})
    back = read_tensors(path)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and back[name].shape == tensor.shape, name
        assert back[name].tobytes() == tensor.tobytes(), name
    assert read_metadata(path) == {"player": "blue"}


def test_torch_tensors_are_taken_as_they_are(tmp_path):
    import torch

    layer = torch.nn.Linear(3, 2)
    state = {**layer.state_dict(), "count": torch.tensor(5), "generator": torch.get_rng_state()}
    write_tensors(tmp_path / "layer.safetensors", state)
    back = read_tensors(tmp_path / "layer.safetensors")
    for name, tensor in state.items():
        assert torch.equal(torch.from_numpy(back[name]), tensor), name


def test_root_can_use_checkpoints_without_torch():
    code = "import sys, arena.records.checkpoints; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_reader_never_sees_a_half_written_file(tmp_path):
    """A process killed while it replaces a file leaves the old one, whole."""
    path = tmp_path / "blue.safetensors"
    write_tensors(path, {"weight": np.zeros(10)})
    code = f"""
import os, signal
from pathlib import Path
from arena.common.files import write_atomically
def die(temporary):
    temporary.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path({str(path)!r}), die)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == -signal.SIGKILL
    assert np.array_equal(read_tensors(path)["weight"], np.zeros(10))


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "blue.safetensors"
    write_tensors(path, {"weight": np.zeros(10)})
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the kernel refuses to write beyond: EFBIG
    try:
        with pytest.raises(OSError, match="File too large"):
            write_text(tmp_path / "big.txt", "x" * 100_000)
        with pytest.raises(OSError, match="File too large"):
            write_tensors(path, {"weight": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_an_unreadable_tensor_file_is_named(tmp_path, content):
    path = tmp_path / "blue.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"blue\.safetensors: expected a safetensors file"):
        read_tensors(path)


def test_no_checkpoint_at_all_is_none(tmp_path):
    assert Checkpoints(tmp_path / "checkpoints").newest() is None


def test_the_newest_counts_and_keep_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for number in range(8, 13):  # 9 to 10: numbers, not names, are compared
        make(checkpoints, number)
    newest = checkpoints.newest()
    assert newest is not None and newest.path.name == "12" and not newest.warnings
    assert newest.manifest["number"] == 12
    assert newest.manifest["steps"] == {"blue": 1200}
    assert set(newest.manifest["parts"]) == {"blue.safetensors", "blue.0.safetensors"}
    assert sorted(path.name for path in checkpoints.directory.iterdir()) == ["10", "11", "12"]
    assert checkpoints.next_number() == 13


def test_one_begun_and_not_completed_does_not_count_and_is_removed_later(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    make(checkpoints, 1)
    write_tensors(checkpoints.begin(2) / "blue.safetensors", {"weight": np.ones(2)})
    newest = Checkpoints(tmp_path).newest()
    assert newest is not None and newest.path.name == "1"
    assert list(checkpoints.begin(2).iterdir()) == []
    make(checkpoints, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


def test_a_missing_part_is_not_declared_complete(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    make(checkpoints, 1)
    checkpoints.begin(2)
    with pytest.raises(FileNotFoundError, match="checkpoint 2 lacks its part red.safetensors"):
        checkpoints.complete(2, {}, expected=["red.safetensors"])
    newest = checkpoints.newest()
    assert newest is not None and newest.path.name == "1"


@pytest.mark.parametrize("name", ["manifest.json", "blue.safetensors", "blue.0.safetensors"])
def test_a_file_cut_at_any_offset_makes_the_checkpoint_not_count(tmp_path, name):
    checkpoints = Checkpoints(tmp_path)
    make(checkpoints, 1)
    damaged = make(checkpoints, 2) / name
    content = damaged.read_bytes()
    for size in range(len(content)):
        damaged.write_bytes(content[:size])
        newest = checkpoints.newest()
        assert newest is not None and newest.path.name == "1", f"cut at {size} of {len(content)} bytes"
        assert len(newest.warnings) == 1 and str(damaged.parent) in newest.warnings[0]
    damaged.unlink()
    newest = checkpoints.newest()
    assert newest is not None and newest.path.name == "1"
    damaged.write_bytes(content)
    newest = checkpoints.newest()
    assert newest is not None and newest.path.name == "2" and not newest.warnings


@pytest.mark.parametrize("name", ["manifest.json", "blue.safetensors"])
def test_a_flipped_byte_makes_the_checkpoint_not_count(tmp_path, name):
    checkpoints = Checkpoints(tmp_path)
    make(checkpoints, 1)
    damaged = make(checkpoints, 2) / name
    content = damaged.read_bytes()
    meaning = json.loads(content) if name == "manifest.json" else None
    for offset in range(len(content)):
        flipped = content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :]
        damaged.write_bytes(flipped)
        newest = checkpoints.newest()
        assert newest is not None
        if newest.path.name == "2":  # only white space was hit: the manifest says the same
            assert json.loads(flipped) == meaning, f"byte {offset}"


def test_when_all_are_damaged_the_error_says_which_and_what_to_do(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        (make(checkpoints, number) / "blue.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError) as caught:
        checkpoints.newest()
    assert f"{tmp_path / '1'}" in str(caught.value) and f"{tmp_path / '2'}" in str(caught.value)
    assert "has 0 bytes instead of" in str(caught.value) and "--set name=" in str(caught.value)


def test_a_damaged_checkpoint_is_replaced_by_one_of_its_number(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    make(checkpoints, 1)
    (make(checkpoints, 2) / "manifest.json").unlink()
    assert checkpoints.next_number() == 3
    whole = files_of(make(checkpoints, 2))
    newest = checkpoints.newest()
    assert newest is not None and newest.path.name == "2"
    assert files_of(newest.path) == whole
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


def test_keep_below_one_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="checkpoint.keep: expected at least 1, found 0"):
        Checkpoints(tmp_path, keep=0)


def test_a_player_who_does_not_play_now_stays_in_later_checkpoints(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        write_tensors(checkpoints.begin(number) / "blue.safetensors", {"w": np.full(2, number)})
        if number == 1:
            write_tensors(checkpoints.partial(1) / "red.safetensors", {"w": np.zeros(3)})
        before = None if number == 1 else tmp_path / "1"
        checkpoints.carry(number, before, ["blue.safetensors", "red.safetensors", "nobody.safetensors"])
        checkpoints.complete(number, {})
    newest = checkpoints.newest()
    assert set(newest.manifest["parts"]) == {"blue.safetensors", "red.safetensors"}
    assert read_tensors(newest.path / "blue.safetensors")["w"].tolist() == [2, 2]
