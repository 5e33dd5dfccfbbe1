"""An environment that has never worked ends the run immediately; one that has worked is restarted."""

import pytest

from arena.env_manager.faults import Fault, fault_of
from arena.environment.episodes.first import FirstEpisodes, NeverWorkedError


def fault(method: str, kind: str = "ValueError (game.py, line 3)", what: str = "raised") -> Fault:
    return Fault(what, "Traceback ...\nValueError: no level", method, "raised ValueError: no level", kind)


def test_the_first_reset_ever_may_fail_once():
    first = FirstEpisodes("game.py:Game", 2, "log/rank-00001.log")
    first.check(0, fault("reset"))
    with pytest.raises(NeverWorkedError) as caught:
        first.check(0, fault("reset"))
    assert str(caught.value) == (
        "environment 'game.py:Game': reset raised ValueError: no level, each time; the environment has not worked yet "
        "(traceback: log/rank-00001.log)"
    )


def test_faults_that_differ_or_come_after_a_reset_are_those_of_a_copy():
    first = FirstEpisodes("game.py:Game", 2, "log")
    first.check(0, fault("reset", "a"))
    first.check(0, fault("reset", "b"))
    first.have_reset = True
    for _ in range(5):
        first.check(0, fault("reset"))


def test_every_copy_fails_in_its_first_episode_in_the_same_way():
    first = FirstEpisodes("game.py:Game", 3, "log")
    first.have_reset = True
    first.check(0, fault("step"))
    first.check(0, fault("step"))
    first.check(1, fault("step"))
    with pytest.raises(NeverWorkedError, match="step raised ValueError: no level, in the first episode of every copy"):
        first.check(2, fault("step"))


def test_a_copy_alone_may_fail_once():
    first = FirstEpisodes("game.py:Game", 1, "log")
    first.check(0, fault("step"))
    with pytest.raises(NeverWorkedError):
        first.check(0, fault("step"))


def test_once_an_episode_is_finished_nothing_ends_the_run_here():
    first = FirstEpisodes("game.py:Game", 1, "log")
    first.have_finished = True
    for _ in range(20):
        first.check(0, fault("step"))


def test_a_breach_of_the_contract_is_not_tried_again():
    with pytest.raises(NeverWorkedError, match="^environment 'g': step must return"):
        FirstEpisodes("g", 8, "log").check(0, Fault("contract", "", "step", "must return ...", "contract"))


def test_a_fault_names_file_and_line_of_the_users_code_and_not_of_a_library():
    import numpy as np

    try:
        np.zeros(3).reshape(5)  # as a user's step would
    except ValueError as error:
        cause = fault_of(error, "step").cause
    assert cause.startswith("raised ValueError: cannot reshape")
    assert "test_first_episodes.py, line " in cause
