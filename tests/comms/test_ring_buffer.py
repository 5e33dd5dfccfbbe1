"""The two counters between workers and their learners: no order of events makes one read what another overwrites."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.comms.ring_buffer import RingBuffer, SharedMemoryReceiver, SharedMemorySender


class Sampler:
    """A worker as far as its learner sees it, one step at a time; ``versions`` are its learner's."""

    def __init__(self, lag: int, versions: RingBuffer, exactly: bool) -> None:
        self.lag, self.sent, self.exactly = lag, 0, exactly
        self.rollouts = RingBuffer(64, lag + 1)
        self.link, self.versions = SharedMemorySender(self.rollouts), SharedMemoryReceiver(versions)
        self.places = versions
        self.read: int | None = None  # the version that acts; None between two rollouts

    def step(self) -> bool:
        """Read a version, or post the rollout; False where it has to wait."""
        if self.read is None:
            needed = max(0, self.sent - self.lag)
            if self.versions.posted() <= needed:
                return False
            version = needed if self.exactly else self.versions.posted() - 1
            held = self.places.buffers[version % (self.lag + 1)].view(np.int64)[0]
            assert held == version, "another version lies where this one should"
            self.read = version
            return True
        words = self.rollouts.buffers[self.sent % (self.lag + 1)].view(np.int64)
        words[:2] = self.sent, self.read
        self.link.post(self.sent)
        self.sent, self.read = self.sent + 1, None
        return True


class Learner:
    """A learner of some workers."""

    def __init__(self, lag: int) -> None:
        self.lag, self.updates = lag, 0
        self.versions = RingBuffer(64, lag + 1)
        self.link = SharedMemorySender(self.versions)
        self.samplers: list[Sampler] = []
        self.greatest = 0
        self.publish(0)

    def publish(self, version: int) -> None:
        self.versions.buffers[version % (self.lag + 1)].view(np.int64)[0] = version
        self.link.post(version)

    def ready(self) -> bool:
        return all(SharedMemoryReceiver(each.rollouts).posted() > self.updates for each in self.samplers)

    def learn(self) -> None:
        for each in self.samplers:
            number, version = each.rollouts.buffers[self.updates % (self.lag + 1)].view(np.int64)[:2]
            assert number == self.updates, "another rollout lies where this one should"
            assert 0 <= number - version <= self.lag
            self.greatest = max(self.greatest, int(number - version))
        self.updates += 1
        self.publish(self.updates)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3), st.booleans(), st.lists(st.integers(0, 3), min_size=50, max_size=400))
def test_no_order_of_events_makes_anyone_read_what_is_overwritten(lag, exactly, order):
    learners = [Learner(lag), Learner(lag)]
    samplers = [Sampler(lag, learner.versions, exactly) for learner in learners]
    for learner, sampler in zip(learners, samplers, strict=True):
        learner.samplers.append(sampler)
    for who in [*order, *([0, 1, 2, 3] * 20)]:
        if who < 2:
            samplers[who].step()
        elif all(learner.ready() for learner in learners):  # an update is one of both learners
            for learner in learners:
                learner.learn()
    assert learners[0].updates >= 10, "nobody waits for ever"
    if exactly and learners[0].updates > lag:
        assert learners[0].greatest == lag
