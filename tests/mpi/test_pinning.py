"""Matches pinned to a core play as others do, never deadlock, and leave nothing behind."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from .launching import ask_workers, player, run_arena, succeed

pytestmark = [
    pytest.mark.rooms("plan", "comms"),
    pytest.mark.skipif(sys.platform != "linux", reason="other kernels keep nobody to a core"),
]

LATE = """
import time

from arena.system.launcher_env import started_by_mpi

if (started_by_mpi() or (0,))[0] == 2:
    time.sleep(30)


class Late:
    def __init__(self, env, group):
        pass

    def run(self, steps):
        pass
"""

LARGE = """
import gymnasium
import numpy as np


class Large(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Box(0, 1, (20_000,), np.float32)

    def see(self):
        return np.full((84, 84, 4), self.steps, np.uint8), {"large": np.full(50_000, self.steps)}

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.see()

    def step(self, action):
        self.steps += 1
        observation, info = self.see()
        info["action"] = action
        return observation, 0.0, False, self.steps == 30, info


class Watches:
    def __init__(self, env, group):
        self.env = env

    def run(self, steps):
        for _ in range(3):
            observation, info = self.env.reset(options={"large": list(range(20_000))})
            over = False
            while not over:
                taken = int(observation[0, 0, 0])
                assert (observation == taken).all() and (info["large"] == taken).all()
                action = np.full(20_000, taken / 256, np.float32)
                observation, _, _, over, info = self.env.step(action)
                assert (info["action"] == action).all()
        print("saw everything", flush=True)
"""

TURNS = """
import time
from arena.comms.semaphores import Semaphore
from arena.comms.time_slice import FREQUENT, TIME_SLICE, TimeSlice

semaphore = Semaphore(value=1)
turn, next_turn = TimeSlice(semaphore, shared=True), TimeSlice(Semaphore(semaphore.name), shared=True)
semaphore.unlink()
assert turn.acquire() and turn.is_useful()
turn.release_if_over()
assert turn.held, "it had only begun"
assert not next_turn.acquire()
time.sleep(TIME_SLICE)
turn.release_if_over()
assert not turn.held and next_turn.acquire()
next_turn.release()
for _ in range(FREQUENT):
    assert turn.is_useful() and turn.acquire()
    time.sleep(0.001)  # the environment waits for something
    turn.release()
assert turn.is_useful() is False
next_turn.acquire()
next_turn.close()
assert turn.acquire(), "whoever ends leaves the turn to the others"
"""


def semaphores() -> set[Path]:
    return set(Path("/dev/shm").glob("sem.*"))


def left_since(before: set[Path]) -> set[Path]:
    """Return the semaphores that have come and stay; those of other runs lose their names in a moment."""
    left = semaphores() - before
    deadline = time.monotonic() + 20
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left &= semaphores()
    return left


def test_ranks_of_a_match_keep_to_a_core_and_leave_no_semaphore_behind(tmp_path, one_core):
    before = semaphores()
    assert ask_workers(tmp_path, "str(os.sched_getaffinity(0))") == [str({one_core})] * 2
    assert not left_since(before)


def test_a_worker_that_never_answers_leaves_no_semaphore_behind(tmp_path, one_core):
    (tmp_path / "late.py").write_text(LATE)
    config = {
        "steps": 10,
        "waits": {"warn_after": 2, "abort_after": 4},
        "env": {"use": "gymnasium:CartPole-v1"},
        "policies": {"player": {"use": f"{tmp_path / 'late.py'}:Late"}},
        "matches": [{"seats": ["player"]}],
    }
    before = semaphores()
    outcome = run_arena(tmp_path, config)
    assert outcome.code == 1, outcome.errors
    assert "the request of a seat's worker from rank 2" in outcome.errors
    assert not left_since(before)


def test_turns_end_and_are_not_for_environments_that_sleep():
    done = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_matches_whose_groups_wait_for_each_other_in_turn_go_on(tmp_path, one_core):
    """Each match has a worker that waits for one of another, which must get its turn to come to its update.

    Two matches send small messages, two large ones.
    """
    large = {"env": {"num_envs": 64}}
    config = {
        "steps": 20_000,
        "waits": {"warn_after": 10},
        "env": {"use": "touchdown", "settings": {"team_size": 1}, "num_envs": 2},
        "policies": {
            "blue": {"use": "ppo", "settings": {"horizon": 16}},
            "red": {"use": "ppo", "settings": {"horizon": 24}},
        },
        "matches": [
            {"seats": ["blue", "red"]},
            {"seats": ["red", "blue"]},
            {"seats": ["blue", "red"], **large},
            {"seats": ["red", "blue"], **large},
        ],
    }
    outcome = succeed(run_arena(tmp_path, config))
    log = (outcome.directory / "log/arena.log").read_text()
    assert "its turn on its core" not in log and "workers of this group" not in log, "what a rank waited for for long"


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_what_proxies_return_is_the_same(tmp_path, one_core, mode):
    settings = {"use": "gymnasium:CartPole-v1", "mode": mode}
    config = {
        "steps": 100_000,
        "env": {"use": "gymnasium:CartPole-v1", "num_envs": 6, "autoreset": mode},
        "policies": {"p": {"use": player("conformance:ComparesWithSyncVectorEnv"), "settings": settings}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    }
    outcome = succeed(run_arena(tmp_path, config))
    assert outcome.output.count("identical to SyncVectorEnv") == 2


def test_large_messages_arrive(tmp_path, one_core):
    """MPI carries them in parts, and not all ways that it has do so while the sender sleeps."""
    (tmp_path / "large.py").write_text(LARGE)
    config = {
        "steps": 200,
        "env": {"use": f"{tmp_path / 'large.py'}:Large"},
        "policies": {"p": {"use": f"{tmp_path / 'large.py'}:Watches"}},
        "matches": [{"seats": ["p"], "replicas": 2}],
    }
    outcome = succeed(run_arena(tmp_path, config))
    assert outcome.output.count("saw everything") == 2
