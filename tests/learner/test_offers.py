"""Offers to a learner, before anything is learned."""

import pytest
from gymnasium import spaces as gym_spaces

from arena.common.errors import ConfigError
from arena.envs.interface import EntitySpaces
from arena.learner.workers import check_offers
from arena.protocol.experience import SamplerOffer

VECTOR, IMAGE = (EntitySpaces("a", gym_spaces.Box(0, 1, shape), gym_spaces.Discrete(2)) for shape in ((3,), (8, 8, 3)))


def offer(player, worker, entity=VECTOR):
    return SamplerOffer(player, worker, (entity,), lanes=4, size=64, memory=None)


def test_a_worker_of_another_player_or_number_is_refused():
    check_offers("p", 1, range(2, 4), [offer("p", 2), offer("p", 3)])
    with pytest.raises(
        ConfigError, match="learner 1 of 'p': expected the experience of worker 3, found that of worker 2"
    ):
        check_offers("p", 1, range(2, 4), [offer("p", 2), offer("p", 2)])
    with pytest.raises(ConfigError, match="found that of worker 2 of 'q'"):
        check_offers("p", 1, range(2, 4), [offer("q", 2), offer("p", 3)])


def test_workers_that_see_different_things_are_refused():
    with pytest.raises(
        ConfigError, match=r"different spaces: .* \(workers 2 and 3\); one policy needs the same spaces"
    ):
        check_offers("p", 1, range(2, 4), [offer("p", 2), offer("p", 3, IMAGE)])
