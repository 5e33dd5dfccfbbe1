"""What all tests share: Hypothesis does not judge speed, for machines are busy; and a run may have only one core."""

import os

import pytest
from hypothesis import settings

settings.register_profile("arena", deadline=None)
settings.load_profile("arena")


@pytest.fixture
def one_core():
    """Have what the test starts on one core, however many there are; the number of that core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)
