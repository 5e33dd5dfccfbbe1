"""Spaces that cannot be carried are refused by name; masks and actions take the form that their spaces state."""

import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.factory import make_environment
from arena.envs.interface import EntitySpaces
from arena.envs.spaces import EntityAdapter, as_mask, check_form, check_spaces, copier, reader, zeros

HERE = Path(__file__).parents[1] / "environments"
BOX, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (spaces.Text(4), "Text"),
        (spaces.Sequence(TWO), "Sequence"),
        (spaces.Graph(BOX, None), "Graph"),
        (spaces.OneOf((TWO, BOX)), "OneOf"),
        (spaces.Dict(a=TWO, b=spaces.Tuple((BOX, spaces.Text(4)))), "Text at ['b'][1]"),
        (spaces.Dict(), "an empty Dict"),
        (spaces.Dict(a=spaces.Tuple(())), "an empty Tuple at ['a']"),
    ],
)
@pytest.mark.parametrize("side", ["observation", "action"])
def test_unsupported_spaces_are_refused_naming_entity_space_and_place(
    space: spaces.Space, found: str, side: str
) -> None:
    entity = EntitySpaces("goalkeeper", BOX, TWO)._replace(**{side: space})
    with pytest.raises(
        ConfigError, match=rf"'goalkeeper': the {side} space.*found {re.escape(found)}, expected any nest"
    ):
        check_spaces([EntitySpaces("striker", BOX, TWO), entity])


def test_every_supported_space_is_accepted() -> None:
    leaves = [spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-1, 1, (), np.float64), TWO]
    leaves += [spaces.MultiDiscrete([2, 3]), spaces.MultiBinary((2, 2))]
    check_spaces([EntitySpaces("all", spaces.Dict(a=spaces.Tuple(leaves)), spaces.Tuple(leaves))])


def test_entities_need_names_of_their_own_and_masks_that_fit() -> None:
    one = EntitySpaces("a", BOX, TWO)
    with pytest.raises(ConfigError, match="found 'a' 2 times"):
        check_spaces([one, one])
    with pytest.raises(ConfigError, match="at least one entity"):
        check_spaces([])
    with pytest.raises(ConfigError, match="mask has 3 flags.*needs 2"):
        check_spaces([one._replace(mask_size=3)])
    with pytest.raises(ConfigError, match="mask has 2 flags.*needs none"):
        check_spaces([one._replace(action=BOX, mask_size=2)])


def test_an_environment_with_an_unsupported_space_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"nested.py:Wordy': entity 'entity_0'.*Text at \['said'\]\[0\]"):
        make_environment(f"{HERE}/nested.py:Wordy")


def test_a_promised_mask_needs_an_action_space_that_can_have_one() -> None:
    with pytest.raises(ConfigError, match="promises action masks.*expected Discrete or MultiDiscrete"):
        EntityAdapter("a", BOX, BOX, declares_mask=True)


def test_a_dict_that_merely_looks_like_a_mask_stays_whole() -> None:
    # Five flags for two actions: not a mask of this action space.
    observation = spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(5))
    port = EntityAdapter("a", observation, TWO)
    assert port.spaces.mask_size == 0 and port.spaces.observation == observation


def test_masks_are_int8_joined_over_choices_and_as_long_as_promised() -> None:
    mask = as_mask((np.array([True, False]), np.array([0, 1, 1])), 5, "a")
    assert mask.dtype == np.int8 and mask.tolist() == [1, 0, 0, 1, 1]
    assert as_mask([True, False], 2, "a").tolist() == [1, 0]
    with pytest.raises(ConfigError, match="'a': expected an action mask of 3 flags, found 2"):
        as_mask([1, 0], 3, "a")


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, np.zeros((1, 2))),
        (BOX, "north"),
        (TWO, 2),
        (TWO, 0.5),
        (spaces.MultiDiscrete([2, 3]), [1, 3]),
        (spaces.Dict(a=TWO), {"b": 1}),
        (spaces.Dict(a=TWO), np.zeros(2)),
        (spaces.Tuple((TWO, BOX)), (1,)),
        (spaces.Dict(a=spaces.Tuple((BOX,))), {"a": (np.zeros(3),)}),
        (BOX, [np.zeros(2), np.zeros(3)]),
    ],
)
def test_an_observation_that_contradicts_its_space_is_refused(space: spaces.Space, value: object) -> None:
    with pytest.raises(ConfigError, match="entity 'a': the environment returned an observation outside its space"):
        check_form("a", space, value)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, [5.0, 2.0]),  # out of its bounds, as many published environments are
        (spaces.Box(0, 255, (2,), np.uint8), np.array([1, 2])),
        (TWO, np.array(1)),
        (spaces.Tuple((TWO, BOX)), [1, np.zeros(2)]),
        (spaces.MultiBinary(2), np.array([True, False])),
        (spaces.Dict(a=TWO), {"a": 1, "more": 2}),
    ],
)
def test_an_observation_that_can_take_the_form_of_its_space_is_accepted(space: spaces.Space, value: object) -> None:
    check_form("a", space, value)
    form = reader(space)(value)
    assert BOX is space or space.contains(form), form


def test_actions_are_copied_in_every_nesting() -> None:
    space = spaces.Dict(a=BOX, b=spaces.Tuple((spaces.MultiBinary(2), TWO)))
    action = {"a": np.ones(2, np.float32), "b": (np.ones(2, np.int8), np.int64(1))}
    copied = copier(space)(action)
    action["a"][:] = 0
    action["b"][0][:] = 0
    assert copied["a"].tolist() == [1, 1] and copied["b"][0].tolist() == [1, 1] and space.contains(copied)


def test_who_is_not_there_observes_a_member_of_its_space() -> None:
    space = spaces.Dict(
        a=BOX, b=spaces.Tuple((spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 2], start=[1, 1])))
    )
    assert space.contains(zeros(space))
