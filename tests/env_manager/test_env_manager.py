"""Every environment manager keeps one contract, whether its copies live here or in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from arena.common.errors import ConfigError
from arena.env_manager import BaseEnvManager, ManagerSettings, create_env_manager
from arena.env_manager.child import serve
from arena.env_manager.faults import CallError, CopyFault, RetriesSpentError
from arena.env_manager.pipe import HELLO, Pipe, PipeClosedError, pair
from arena.env_manager.source import EnvironmentSource
from arena.envs.factory import make_environment
from arena.envs.interface import Environment

HERE = Path(__file__).parents[1] / "environments"
PLANT = f"{Path(__file__).parents[2] / 'benchmarks' / 'tools' / 'fault_injection.py'}:plant"
LEFT = (np.int64(0),)
CARTPOLE = EnvironmentSource("gymnasium:CartPole-v1", {})

Make = Callable[..., BaseEnvManager]


@pytest.fixture(params=["serial", "subprocess"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(kind: str) -> Iterator[Make]:
    """Makes managers of one kind, and closes them."""
    made: list[BaseEnvManager] = []

    def make_one(source: Any = CARTPOLE, env_num: int = 3, **settings: Any) -> BaseEnvManager:
        made.append(create_env_manager(kind, source, env_num, ManagerSettings(**{"backoff": 0.01, **settings})))
        return made[-1]

    yield make_one
    for manager in made:
        manager.close()


@pytest.fixture
def manager(make: Make) -> BaseEnvManager:
    return make()


def faulty(tickets: Path, *faults: tuple[str, int]) -> EnvironmentSource:
    """Return CartPole with faults, each of which happens once: (kind, step of the copy)."""
    settings = {"tickets": str(tickets), "faults": list(faults)}
    return EnvironmentSource("gymnasium:CartPole-v1", {}, [(PLANT, settings)])


def seeds(*found: int) -> list[dict[str, int]]:
    return [{"seed": seed} for seed in found]


# What both do alike ---------------------------------------------------------------------------------------------------


def test_copies_are_independent_and_seeded_one_by_one(manager):
    alone = CARTPOLE(0)
    timesteps = manager.reset(seeds(5, 6, 5))
    assert isinstance(timesteps, list) and len(timesteps) == manager.env_num == 3
    for seed, timestep in zip([5, 6, 5], timesteps, strict=True):
        np.testing.assert_array_equal(timestep.observations[0], alone.reset(seed).observations[0])
    assert not np.array_equal(timesteps[0].observations[0], timesteps[1].observations[0])


def test_one_seed_seeds_all_copies_differently_and_holds_for_the_next_reset_only(manager):
    manager.seed(10)
    together, again = manager.reset(), manager.reset()
    manager.seed([12], env_id=2)
    alone = manager.reset(env_id=2)
    one_by_one = [CARTPOLE(0).reset(10 + i).observations[0] for i in range(3)]
    np.testing.assert_array_equal([t.observations[0] for t in together], one_by_one)
    np.testing.assert_array_equal(alone[2].observations[0], one_by_one[2])
    assert not np.array_equal(again[0].observations[0], together[0].observations[0])


def test_with_env_id_only_those_copies_move_and_answers_are_by_index(manager):
    before = manager.reset(seeds(1, 2, 3))
    moved = manager.step({2: LEFT, 0: LEFT}, env_id=[2, 0])
    assert list(moved) == [2, 0]
    everyone = manager.step([LEFT] * 3)
    fresh = CARTPOLE(0)
    fresh.reset(2)
    np.testing.assert_array_equal(everyone[1].observations[0], fresh.step(LEFT).observations[0])
    assert not np.array_equal(everyone[0].observations[0], before[0].observations[0])
    assert list(manager.step([LEFT], env_id=1)) == [1]
    assert list(manager.reset({1: {"seed": 4}}, env_id=1)) == [1]


def test_what_was_returned_stays_as_it_was(manager):
    first = manager.reset(seeds(1, 2, 3))[0].observations[0]
    kept = first.copy()
    manager.step([LEFT] * 3)
    np.testing.assert_array_equal(first, kept)


def test_steps_are_those_of_the_environment_itself_to_the_last_bit(make):
    manager = make(EnvironmentSource(f"{HERE}/nested.py:Nested", {}), 2)
    alone = manager._makes[0](0)
    space = alone.entities[0].action
    space.seed(0)
    pairs = [(manager.reset(seeds(3, 4))[0], alone.reset(3))]
    for _ in range(12):
        action = space.sample()
        if pairs[-1][1].over:
            manager.seed([5, 6])
            pairs.append((manager.reset()[0], alone.reset(5)))
        else:
            pairs.append((manager.step([[action]] * 2)[0], alone.step([action])))
    for found, expected in pairs:
        same(found.observations[0], expected.observations[0])
        assert list(found.rewards) == list(expected.rewards)
        assert list(found.infos) == list(expected.infos)
        assert [list(found[i]) for i in (2, 3, 5)] == [list(expected[i]) for i in (2, 3, 5)]
        assert found.over is expected.over


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


def test_games_of_several_entities_keep_masks_and_turns(make):
    manager = make(EnvironmentSource("pettingzoo:classic.tictactoe_v3", {}), 2)
    assert manager.turn_based
    (first, _) = manager.reset(seeds(1, 2))
    assert list(first.acting) == [True, False]
    second = manager.step([(np.int64(4), np.int64(0))] * 2)[0]
    assert list(second.acting) == [False, True]
    assert second.action_masks[1].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


def test_who_is_done_and_who_is_ready_is_told(manager):
    assert manager.env_done == [True] * 3 and manager.all_done and manager.ready == []
    manager.reset(seeds(0, 1, 2))
    assert manager.ready == [0, 1, 2] and not manager.all_done
    while not manager.env_done[1]:
        manager.step([LEFT], env_id=1)
    assert manager.env_done == [False, True, False] and manager.ready == [0, 2]
    manager.reset(env_id=1)
    assert len(manager.step([LEFT] * 3)) == 3


def test_options_reach_every_copy(make):
    manager = make(EnvironmentSource(f"{HERE}/nested.py:Nested", {}), 2)
    assert [t.infos[0] for t in manager.reset([{"options": {"level": 2}}] * 2)] == [{"options": {"level": 2}}] * 2


MISTAKES: dict[str, tuple[type[Exception], str, Callable[[BaseEnvManager], Any]]] = {
    "too few actions": (ValueError, r"copies \[0, 1, 2\], found 2", lambda m: m.step([LEFT] * 2)),
    "too many actions": (ValueError, "found 4", lambda m: m.step([LEFT] * 4)),
    "an action left out": (ValueError, "found none for copy 1", lambda m: m.step({0: LEFT}, env_id=[0, 1])),
    "too few entities": (ValueError, "expected 1 actions, one for each entity, found 0", lambda m: m.step([()] * 3)),
    "an action's shape": (ValueError, r"an action of shape \(\)", lambda m: m.step([(np.zeros(2),)] * 3)),
    "an unknown id": (IndexError, "from 0 to 2, found 3", lambda m: m.step([LEFT], env_id=3)),
    "an unknown id at reset": (IndexError, "from 0 to 2, found -1", lambda m: m.reset(env_id=-1)),
    "an id twice": (IndexError, "found 1 twice", lambda m: m.step([LEFT] * 2, env_id=[1, 1])),
    "too many seeds": (ValueError, "found 4", lambda m: m.seed([1, 2, 3, 4])),
    "an odd parameter": (TypeError, "seed and options.*'sed'", lambda m: m.reset([{"sed": 1}] * 3)),
    "an attribute": (AttributeError, "did you mean 'turn_based'", lambda m: m.get_attr("turn_basd")),
    "a call": (AttributeError, "no attribute 'fly'", lambda m: m.call("fly", 3)),
    "a call that raises": (CallError, "TypeError", lambda m: m.call("reset", 1, 2, 3)),
}


def test_mistakes_are_told_at_once_and_leave_everything_usable(manager):
    manager.reset(seeds(1, 2, 3))
    for error, text, do in MISTAKES.values():
        with pytest.raises(error, match=text):
            do(manager)
    fresh = CARTPOLE(0)
    fresh.reset(2)
    np.testing.assert_array_equal(manager.step([LEFT] * 3)[1].observations[0], fresh.step(LEFT).observations[0])


def test_a_step_without_an_episode_is_refused_before_any_copy_moves(manager):
    with pytest.raises(RuntimeError, match=r"copy 0 has no episode to step in; expected reset\(env_id=0\)"):
        manager.step([LEFT] * 3)
    manager.reset(seeds(1, 2, 3))
    while not manager.env_done[1]:
        manager.step([LEFT], env_id=1)
    with pytest.raises(RuntimeError, match="copy 1"):
        manager.step([LEFT] * 3)
    fresh = CARTPOLE(0)
    fresh.reset(1)
    moved = manager.step([LEFT], env_id=0)
    np.testing.assert_array_equal(moved[0].observations[0], fresh.step(LEFT).observations[0])


def test_a_closed_manager_says_so(make):
    manager = make()
    manager.reset()
    manager.close()
    manager.close()
    for use in (
        manager.reset,
        lambda: manager.step([LEFT] * 3),
        lambda: manager.get_attr("turn_based"),
        manager.render,
    ):
        with pytest.raises(RuntimeError, match="is closed"):
            use()


def test_empty_managers_unlike_copies_and_odd_settings_are_refused(make):
    with pytest.raises(ConfigError, match="at least one environment copy, found 0"):
        make(env_num=0)
    names = ["CartPole-v1", "Pendulum-v1"]
    with pytest.raises(ConfigError, match="same entities in every environment copy"):
        make(lambda i: make_environment(f"gymnasium:{names[i]}"), 2)
    with pytest.raises(ConfigError, match="no module named 'nowhere'"):
        make(EnvironmentSource("nowhere:make", {}), 1)
    with pytest.raises(ValidationError, match="expected 'renew' or 'reset', found 'again'"):
        make(retry="again")


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"'serials' \(did you mean 'serial'\?\); expected one of serial, subprocess"):
        create_env_manager("serials", CARTPOLE, 1)


def test_attributes_and_calls_reach_the_copies_and_what_they_adapt(manager):
    assert manager.get_attr("turn_based") == [False] * 3
    assert manager.get_attr("spec", env_id=[2])[2].id == "CartPole-v1"
    assert manager.get_attr("gravity", env_id=1) == {1: 9.8}
    manager.reset()
    assert manager.call("reset", seed=7)[0].over is False


def test_render_draws_the_copy_that_is_asked_for(make):
    manager = make(EnvironmentSource("gymnasium:CartPole-v1", {"render_mode": "rgb_array"}), 2)
    manager.reset(seeds(1, 2))
    frames = [manager.render(i) for i in range(2)]
    assert frames[0].shape == frames[1].shape and not np.array_equal(*frames)


def test_close_closes_every_copy_although_one_fails_to(make, tmp_path):
    def stubborn(index: int) -> Environment:
        environment = make_environment("gymnasium:CartPole-v1")

        def close() -> None:
            (tmp_path / str(index)).touch()
            if index == 0:
                raise OSError("the device is busy")

        environment.close = close
        return environment

    manager = make(stubborn)
    with pytest.raises((OSError, CallError), match="busy"):
        manager.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


def test_copies_that_were_made_are_closed_when_a_later_one_cannot_be(make, tmp_path):
    closed, made = tmp_path / "closed", tmp_path / "made"
    closed.mkdir()
    made.mkdir()

    def third_time_unlucky(index: int) -> Environment:
        if index == 2:
            until = time.monotonic() + 20
            while len(list(made.iterdir())) < 2 and time.monotonic() < until:  # so that the others are there
                time.sleep(0.01)
            time.sleep(0.3)
            raise ConfigError("no more")
        environment = make_environment("gymnasium:CartPole-v1")
        environment.close = (closed / str(index)).touch
        (made / str(index)).touch()
        return environment

    with pytest.raises(ConfigError, match="no more"):
        make(third_time_unlucky)
    assert sorted(path.name for path in closed.iterdir()) == ["0", "1"]


@pytest.mark.parametrize("retry", ["renew", "reset"])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise", "raised: RuntimeError: a planted mistake"),
        ("nan", "nan: .*an observation"),
        ("nan_reward", "nan: .*a reward"),
        ("inf_reward", "nan: .*a reward"),
        ("shape", "shape: "),
        ("exit", "exited: "),
    ],
)
def test_a_copy_that_fails_is_replaced_and_its_episode_cut(make, tmp_path, fault, told, retry):
    manager = make(faulty(tmp_path, (fault, 2)), 2, retry=retry, seed=1)
    manager.reset(seeds(1, 2))
    before = manager.step([LEFT] * 2)
    with_fault = manager.step([LEFT] * 2)
    (broken,) = [i for i in range(2) if with_fault[i].infos[0]]
    check_cut(manager, broken, before[broken], with_fault[broken], told)
    assert manager.env_done[1 - broken] is False, "the other copy plays on"
    after = manager.reset(env_id=broken)[broken]
    assert np.isfinite(after.observations[0]).all()
    assert len(manager.step([LEFT] * 2)) == 2


def check_cut(manager, copy, before, cut, told):
    assert re.match(told, cut.infos[0]["restarted"]), cut.infos
    assert (cut.over, cut.truncated, cut.terminated, cut.acting, cut.rewards) == (True, [True], [False], [False], [0.0])
    np.testing.assert_array_equal(cut.observations[0], before.observations[0])
    assert manager.env_done[copy] is True
    with pytest.raises(RuntimeError, match="has no episode"):
        manager.step([LEFT], env_id=copy)


def test_a_restarted_copy_is_reseeded_from_its_seed(make, tmp_path):
    def after_a_fault(number: int, seed: int) -> np.ndarray:
        manager = make(faulty(tmp_path / str(number), ("raise", 1)), 1)
        manager.reset(seeds(seed))
        manager.step([LEFT])
        return manager.reset()[0].observations[0]

    first, again, other = after_a_fault(1, 5), after_a_fault(2, 5), after_a_fault(3, 6)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, CARTPOLE(0).reset(5).observations[0])


def test_a_reset_that_fails_is_tried_again(make, tmp_path):
    manager = make(faulty(tmp_path, ("reset:raise", 0), ("reset:nan", 0)), 1)
    timestep = manager.reset(seeds(3))[0]
    assert np.isfinite(timestep.observations[0]).all() and not timestep.over
    assert len(list(tmp_path.iterdir())) == 2


def test_a_copy_that_only_fails_is_given_up_with_its_traceback_and_the_others_play_on(make, tmp_path):
    def hopeless(index: int) -> Environment:
        environment = make_environment("gymnasium:CartPole-v1")

        def step(actions: Any) -> Any:
            raise ZeroDivisionError("for ever")

        if index == 1:
            environment.step = step
        return environment

    manager = make(hopeless, 2, max_retry=2)
    for _ in range(2):
        manager.reset(seeds(1, 2))
        assert "ZeroDivisionError: for ever" in manager.step([LEFT] * 2)[1].infos[0]["restarted"]
    manager.reset()
    with pytest.raises(RetriesSpentError, match=r"copy 1 failed 3 times in a row(.|\n)*Traceback(.|\n)*for ever"):
        manager.step([LEFT] * 2)
    assert manager.env_done == [False, True]
    assert list(manager.step([LEFT], env_id=0)) == [0]


def test_finished_episodes_forgive_faults(make, tmp_path):
    manager = make(faulty(tmp_path, ("raise", 3), ("raise", 60)), 1, max_retry=1, retry="reset")
    faults = 0
    manager.reset(seeds(1))
    for _ in range(70):
        timestep = manager.step([LEFT])[0]
        faults += "restarted" in timestep.infos[0]
        if timestep.over:
            manager.reset()
    assert faults == 2


def test_a_restarted_copy_is_a_new_one_and_may_be_another(make):
    manager = make(EnvironmentSource("touchdown", {"max_steps": 40}), 2)
    stay = [np.int64(0)] * len(manager.entities)
    manager.reset()
    manager.restart(1, EnvironmentSource("touchdown", {"max_steps": 3}))
    assert manager.env_done == [False, True]
    manager.reset(env_id=1)
    for _ in range(3):
        manager.step([stay] * 2)
    assert manager.env_done == [False, True]
    manager.restart(1)
    manager.reset(env_id=1)
    assert [len(manager.step([stay] * 2)), manager.env_done] == [2, [False, False]]


def test_a_first_ready_part_is_enough(make):
    manager = make(wait_num=2, wait_timeout=5.0)
    manager.reset(seeds(1, 2, 3))
    found = manager.step([LEFT] * 3)
    while len(found) < 3:
        assert isinstance(found, dict)
        found |= manager.step({}, env_id=[])
    assert sorted(found) == [0, 1, 2]
    fresh = CARTPOLE(0)
    fresh.reset(3)
    np.testing.assert_array_equal(found[2].observations[0], fresh.step(LEFT).observations[0])


def test_in_two_halves_as_the_engine_uses_it(make, tmp_path):
    manager = make(faulty(tmp_path, ("raise", 2)), 1)

    def answer() -> Any:
        while manager.pending(0):
            manager.poll(1.0)
        return manager.result(0)

    manager.begin_reset(0, 4)
    np.testing.assert_array_equal(answer().observations[0], CARTPOLE(0).reset(4).observations[0])
    manager.begin_step(0, LEFT)
    assert list(answer().rewards) == [1.0]
    manager.begin_step(0, LEFT)
    with pytest.raises(CopyFault, match="a planted mistake"):
        answer()
    manager.begin_reset(0)
    assert not answer().over


# What only processes of their own can do ------------------------------------------------------------------------------


@pytest.fixture
def make_apart() -> Iterator[Make]:
    """Makes managers with subprocesses, and closes them."""
    made: list[BaseEnvManager] = []

    def make_one(source: Any = CARTPOLE, env_num: int = 2, **settings: Any) -> BaseEnvManager:
        settings = {"backoff": 0.01, "step_timeout": 20.0, **settings}
        made.append(create_env_manager("subprocess", source, env_num, ManagerSettings(**settings)))
        return made[-1]

    yield make_one
    for manager in made:
        manager.close()


@pytest.mark.parametrize(
    ("fault", "settings", "told"),
    [
        ("segfault", {}, r"killed: .*signal 11 \(SIGSEGV\)"),
        ("kill", {}, r"killed: .*signal 9 \(SIGKILL\)"),
        ("hang", {"step_timeout": 0.3}, "hung: .*longer than 0.3 s"),
        ("leak", {"memory_limit": 400}, r"memory: .*more than the limit of 400"),
    ],
)
def test_a_process_that_is_lost_is_replaced_and_its_episode_cut(make_apart, tmp_path, fault, settings, told):
    manager = make_apart(faulty(tmp_path, (fault, 2)), **settings)
    manager.reset(seeds(1, 2))
    before = manager.step([LEFT] * 2)
    began = time.monotonic()
    with_fault = manager.step([LEFT] * 2)
    assert time.monotonic() - began < 5
    (broken,) = [i for i in range(2) if with_fault[i].infos[0]]
    check_cut(manager, broken, before[broken], with_fault[broken], told)
    manager.reset(env_id=broken)
    assert len(manager.step([LEFT] * 2)) == 2


def test_a_hung_copy_says_where_it_hangs(make_apart, tmp_path):
    manager = make_apart(faulty(tmp_path, ("hang", 1)), 1, step_timeout=0.2)
    manager.begin_reset(0)
    while manager.pending(0):
        manager.poll(1.0)
    manager.result(0)
    manager.begin_step(0, LEFT)
    while manager.pending(0):
        manager.poll(1.0)
    with pytest.raises(CopyFault) as caught:
        manager.result(0)
    assert "fault_injection.py" in caught.value.fault.text and "in happen" in caught.value.fault.text


def test_a_reset_and_a_start_that_hang_are_cut_too(make_apart, tmp_path):
    manager = make_apart(faulty(tmp_path, ("reset:hang", 0)), 1, reset_timeout=0.2)
    assert not manager.reset(seeds(1))[0].over

    def slow(index: int) -> Environment:
        time.sleep(60)
        raise AssertionError

    began = time.monotonic()
    with pytest.raises(RetriesSpentError, match="its start took longer than 1.5 s"):
        make_apart(slow, 1, start_timeout=1.5, max_retry=0)
    assert time.monotonic() - began < 10


def test_a_copy_that_dies_while_nobody_asks_it_is_told_of_with_the_next_step(make_apart):
    manager = make_apart()
    manager.reset(seeds(1, 2))
    manager.step([LEFT] * 2)
    os.kill(pid_of(manager, 0), signal.SIGKILL)
    time.sleep(0.1)
    timesteps = manager.step([LEFT] * 2)
    assert "SIGKILL" in timesteps[0].infos[0]["restarted"] and timesteps[0].over
    assert not timesteps[1].over
    manager.reset(env_id=0)
    assert len(manager.step([LEFT] * 2)) == 2


def pid_of(manager: BaseEnvManager, copy: int) -> int:
    """Return the process of a copy: the fork server's children, in the order of their making."""
    fork_server = manager._processes._fork_server._process.pid
    children = Path(f"/proc/{fork_server}/task/{fork_server}/children").read_text().split()
    return int(children[copy])


def test_the_fork_server_itself_may_die(make_apart):
    manager = make_apart()
    manager.reset(seeds(1, 2))
    os.kill(manager._processes._fork_server._process.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert [t.over for t in manager.step([LEFT] * 2)] == [True, True]
    manager.reset()
    assert [t.over for t in manager.step([LEFT] * 2)] == [False, False]


def test_copies_step_side_by_side_and_the_first_are_not_kept_waiting(make_apart, tmp_path):
    go_on = tmp_path / "go_on"

    def uneven(index: int) -> Environment:
        environment = make_environment("gymnasium:CartPole-v1")
        inner = environment.step

        def step(actions: Any) -> Any:
            while index == 1 and not go_on.exists():
                time.sleep(0.01)
            return inner(actions)

        environment.step = step
        return environment

    manager = make_apart(uneven, 3, wait_num=2, wait_timeout=30.0)
    manager.reset(seeds(1, 2, 3))
    assert sorted(manager.step([LEFT] * 3)) == [0, 2]
    assert manager.ready == [0, 2]
    assert sorted(manager.step([LEFT] * 2, env_id=[0, 2])) == [0, 2]
    with pytest.raises(RuntimeError, match="copy 1 has not answered its last step"):
        manager.step([LEFT], env_id=1)
    with pytest.raises(RuntimeError, match="copy 1 has not answered its last step"):
        manager.reset(env_id=1)
    go_on.touch()
    assert sorted(manager.step({}, env_id=[])) == [1]


def test_copies_know_nothing_of_mpi_and_torch(make_apart, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("PMIX_RANK", "3")

    def telling(index: int) -> Environment:
        environment = make_environment("gymnasium:CartPole-v1")
        environment.loaded = lambda: [name for name in ("mpi4py", "torch", "arena.comms") if name in sys.modules]
        environment.told = lambda: [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PMI_"))]
        environment.drawn = lambda: float(np.random.random())  # noqa: NPY002 (what environments of others draw from)
        return environment

    manager = make_apart(telling)
    assert manager.call("loaded") == [[], []]
    assert manager.call("told") == [[], []]
    assert len(set(manager.call("drawn"))) == 2, "copies share a stream of the global generator"


LIVES_ON = """
import sys, time
sys.path[:0] = {path!r}
from test_env_manager import faulty, LEFT, seeds, ManagerSettings, create_env_manager
from pathlib import Path
manager = create_env_manager("subprocess", faulty(Path({tickets!r}), ("hang", 1)), 2, ManagerSettings())
manager.reset(seeds(1, 2))
print(manager._processes._fork_server._process.pid, flush=True)
manager.step([LEFT] * 2)
"""


def test_nothing_is_left_when_the_manager_is_killed(tmp_path):
    """One of the copies hangs and receives nothing: the kernel must end it."""
    code = LIVES_ON.format(path=[str(Path(__file__).parent)], tickets=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as killed:
        fork_server = int(killed.stdout.readline())
        copies = [int(pid) for pid in Path(f"/proc/{fork_server}/task/{fork_server}/children").read_text().split()]
        assert len(copies) == 2
        while not (tmp_path / "0.json").exists():
            time.sleep(0.02)
        killed.kill()
    until = time.monotonic() + 5
    while any(alive(pid) for pid in (fork_server, *copies)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [pid for pid in (fork_server, *copies) if alive(pid)]
    assert not list(Path("/dev/shm").glob("*arena*"))


def refuse(env_id: int) -> Environment:
    raise ValueError("no game here")


@pytest.mark.parametrize("source", [CARTPOLE, refuse], ids=["made", "refused"])
def test_a_copy_whose_manager_has_ended_during_its_start_ends_without_an_error(source):
    """A run that is refused ends its ranks while their copies are made: tracebacks of those hide the one message."""
    mine, theirs = pair()

    def lose_the_manager(env_id: int) -> Environment:
        mine.close()
        return source(env_id)

    serve(Pipe(theirs), lose_the_manager, 0)


def test_a_connection_that_is_reset_is_a_manager_that_has_ended():
    mine, theirs = pair()
    copy = Pipe(theirs)
    copy.send(HELLO, b"")
    mine.close()  # with the greeting unread, which resets the connection
    with pytest.raises(PipeClosedError):
        copy.receive_descriptor()


@pytest.mark.tier("all")
def test_closing_says_nothing(make_apart, capfd):
    """The fork server ends while its copies still die."""
    for _ in range(6):
        manager = make_apart(env_num=16)
        manager.reset(seeds(*range(16)))
        manager._processes._fork_server.close()
    assert capfd.readouterr() == ("", "")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_restarts_leak_no_descriptors(make_apart):
    manager = make_apart(env_num=1)
    counts = []
    for _ in range(4):
        manager.reset(seeds(1))
        os.kill(pid_of(manager, 0), signal.SIGKILL)
        assert manager.step([LEFT])[0].over
        manager.reset()
        while not manager.step([LEFT])[0].over:
            pass
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]
