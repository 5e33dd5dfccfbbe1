"""A waiting rank yields its core, reports what it waits for after some time, and gives up in the end."""

import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest

from arena.common.errors import RankLostError
from arena.common.waiting import HangError, Waiter


def never_called(*_: object) -> Any:
    raise AssertionError("expected no call")


def waiter(**changed) -> Waiter:
    settings = {"spin": 0, "yielding": 0, "max_sleep": 0.001, "warn_after": 60, "abort_after": 60}
    return Waiter(**{**settings, "on_warn": never_called, **changed})


def after(calls: int):
    """A test that is false ``calls`` times."""
    outcomes = iter([False] * calls)
    return lambda: next(outcomes, True)


@pytest.mark.parametrize("settings", [{}, {"spin": 60}, {"yielding": 60}], ids=["sleeping", "spinning", "yielding"])
def test_what_is_there_already_is_returned_at_once(settings):
    """No sleep and no second look: this is on the path of every step."""
    looks = []
    waiter(**settings, on_idle=never_called).until(lambda: not looks.append(1), never_called)
    assert len(looks) == 1


@pytest.mark.parametrize("settings", [{"spin": 60}, {"yielding": 60}], ids=["spinning", "yielding"])
def test_what_comes_soon_is_not_slept_through(settings):
    waiter(**settings, on_idle=never_called).until(after(100), lambda: "an answer")


def test_the_three_ways_of_waiting_follow_each_other():
    idle = []
    until = time.monotonic() + 0.05
    waiter(spin=0.005, yielding=0.005, on_idle=lambda: idle.append(1)).until(
        lambda: time.monotonic() > until, lambda: "the clock"
    )
    assert idle, "never got to sleeping, where the mailbox is looked after"


def test_pauses_grow_to_the_longest_that_is_allowed():
    """Short waits stay short, long ones cost next to nothing."""
    moments = []
    waiter(max_sleep=0.02, on_idle=lambda: moments.append(time.monotonic())).until(after(60), lambda: "an answer")
    pauses = [b - a for a, b in pairwise(moments)]
    assert min(pauses[:10]) < 0.01
    assert min(pauses[-5:]) >= 0.02


def test_pauses_grow_with_a_wait_that_is_long_already():
    """Ranks that wait for one that loads its libraries would else keep it from its core."""
    looks = []
    until = time.monotonic() + 0.5
    waiter(max_sleep=0.0005, late=0.05).until(lambda: looks.append(1) or time.monotonic() > until, lambda: "the clock")
    assert len(looks) < 300  # 1,000 of half a millisecond


def test_a_long_wait_is_told_again_after_each_doubling():
    began = time.monotonic()
    told: list[tuple[float, str]] = []
    waiter(warn_after=0.02, on_warn=lambda text: told.append((time.monotonic() - began, text))).until(
        lambda: len(told) == 4, lambda: "actions from worker ranks [3, 5]"
    )
    for doubling, (seconds, text) in enumerate(told):
        assert seconds >= 0.02 * 2**doubling
        assert text == f"has waited {seconds:.0f} s for actions from worker ranks [3, 5]"


def test_a_wait_that_is_too_long_ends_with_what_was_missing():
    began = time.monotonic()
    with pytest.raises(HangError, match=r"waited 0 s for actions from worker ranks \[3\]"):
        waiter(spin=0.01, yielding=0.01, abort_after=0.05).until(lambda: False, lambda: "actions from worker ranks [3]")
    assert time.monotonic() - began >= 0.05


def test_looking_after_other_things_may_end_the_wait():
    """So a match that the root closes frees a worker that waits for an answer which never comes."""

    def over() -> None:
        raise InterruptedError("the match is over")

    with pytest.raises(InterruptedError, match="the match is over"):
        waiter(on_idle=over).until(lambda: False, lambda: "an answer")


def test_a_wait_that_cannot_look_at_the_clock_ends_the_process():
    script = (
        "from tests.common.test_waiting import waiter\n"
        "import time\n"
        "with waiter(abort_after=0.2).watching('all ranks that are left'): time.sleep(30)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: waited 0 s for all ranks that are left\n"


def test_a_wait_ends_where_something_says_that_it_must():
    def lost():
        raise RankLostError("rank 3")

    with pytest.raises(RankLostError, match="rank 3"):
        waiter(check=lost).until(lambda: False, lambda: "actions")
