"""One end of a seat reads what the other writes: both derive the same bytes from the same spaces."""

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.common.masks import mask_runs
from arena.common.trees import even_slices, map_tree, tree_leaves
from arena.env_manager.slot import Slot
from arena.envs.interface import EntitySpaces, Team, Timestep
from arena.envs.spaces import mask_size
from arena.protocol.wire import (
    ALIGNMENT,
    ActionMessage,
    SlotWriter,
    action_reader,
    blocks_of,
    make_observation_message,
)
from arena.system.shared_memory import map_memory, new_memory
from arena.worker.proxy import put_action

sizes = st.integers(1, 4)
shapes = st.lists(sizes, max_size=3).map(tuple)
leaves = st.one_of(
    st.builds(lambda shape, dtype: spaces.Box(0, 100, shape, dtype), shapes, st.sampled_from([np.float32, np.float64])),
    st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), shapes),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), sizes, st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(sizes, min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, sizes),
)
any_space = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@st.composite
def seats(draw: Callable) -> list[EntitySpaces]:
    """Draw the entities of a seat, some of a kind."""
    masked = st.tuples(any_space, any_space).map(lambda pair: (*pair, mask_size(pair[1])))
    kinds = draw(st.lists(st.one_of(masked, st.tuples(any_space, any_space, st.just(0))), min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))
    return [EntitySpaces(f"entity_{i}", *pickle.loads(pickle.dumps(kind))) for i, kind in enumerate(chosen)]


def same(found: Any, expected: Any, space: spaces.Space) -> None:
    if isinstance(space, spaces.Dict):
        assert list(found) == list(space.spaces)
        for key, sub in space.spaces.items():
            same(found[key], expected[key], sub)
    elif isinstance(space, spaces.Tuple):
        for item, other, sub in zip(found, expected, space.spaces, strict=True):
            same(item, other, sub)
    else:
        assert found.dtype == space.dtype
        np.testing.assert_array_equal(found, expected, strict=isinstance(expected, np.ndarray))


def over_the_wire(source: np.ndarray, target: np.ndarray) -> None:
    assert source.nbytes == target.nbytes
    target[...] = source


def entity_at_the_other_end(entities: list[EntitySpaces]) -> list[EntitySpaces]:
    """Offers of seats travel pickled: the other end has equal spaces, not the same ones."""
    return pickle.loads(pickle.dumps(entities))


@given(seats(), sizes)
def test_observations_arrive_as_they_were_written(entities, copies):
    blocks, other_blocks = blocks_of(entities), blocks_of(entity_at_the_other_end(entities))
    record, received = make_observation_message(blocks, copies), make_observation_message(other_blocks, copies)
    written = {}
    for b, block in enumerate(blocks):
        for place, position in enumerate(block.positions):
            for copy in range(copies):
                observation = written[b, place, copy] = entities[position].observation.sample()
                SlotWriter(record.observations[b], copy, place, entities[position].name).write(observation)
    over_the_wire(record.buffer, received.buffer)
    for (b, place, copy), observation in written.items():
        tree = map_tree(lambda array, at=(copy, place): array[at], received.observations[b])
        same(tree, observation, blocks[b].spaces.observation)


@given(seats(), sizes)
def test_actions_arrive_as_they_were_written(entities, copies):
    blocks, other_blocks = blocks_of(entities), blocks_of(entity_at_the_other_end(entities))
    message, received = ActionMessage(blocks, copies), ActionMessage(other_blocks, copies)
    readers, written = {}, {}
    for b, block in enumerate(blocks):
        for place, position in enumerate(block.positions):
            for copy in range(copies):
                readers[b, place, copy] = action_reader(received.actions[b], copy, place)
                action = written[b, place, copy] = entities[position].action.sample()
                view = map_tree(lambda array, at=(copy, place, ...): array[at], message.actions[b])
                put_action(view, action)
    over_the_wire(message.buffer, received.buffer)
    for key, action in written.items():
        same(readers[key](), action, blocks[key[0]].spaces.action)


@given(seats(), sizes)
def test_the_fixed_part_of_a_record_keeps_apart(entities, copies):
    """Each array is written with a value of its own; none may show up in another."""
    blocks = blocks_of(entities)
    record, received = make_observation_message(blocks, copies), make_observation_message(blocks, copies)
    flags = (record.terminated, record.truncated, record.acting, record.started, record.over)
    for flag in flags:
        for other in flags:
            other[...] = other is flag
        record.header[0], record.header[1] = 3, 1 << 40
        record.rewards[...] = -0.1
        over_the_wire(record.buffer, received.buffer)
        read = (received.terminated, received.truncated, received.acting, received.started, received.over)
        assert [bool(array.all()) for array in read] == [other is flag for other in flags]
        assert not any(array.any() for array, other in zip(read, flags, strict=True) if other is not flag)
        assert received.header.tolist() == [3, 1 << 40]
        assert (received.rewards == -0.1).all()
        assert not any(leaf.any() for tree in received.observations for leaf in tree_leaves(tree))


@given(seats(), sizes)
def test_every_array_starts_at_a_cache_line_and_has_its_shape(entities, copies):
    blocks = blocks_of(entities)
    record, message = make_observation_message(blocks, copies), ActionMessage(blocks, copies)
    fixed = [record.rewards, record.terminated, record.truncated, record.acting]
    assert {array.shape for array in fixed} == {(copies, len(entities))}
    assert record.started.shape == record.over.shape == (copies,)
    masks = [mask for mask in record.action_masks if mask is not None]
    arrays = [*fixed, np.asarray(record.header), record.started, record.over, np.asarray(message.header), *masks]
    for block, seen, done in zip(blocks, record.observations, message.actions, strict=True):
        leaves_of_block = [*tree_leaves(seen), *tree_leaves(done)]
        assert {leaf.shape[:2] for leaf in leaves_of_block} == {(copies, len(block.positions))}
        arrays += leaves_of_block
    for array in [record.buffer, message.buffer, *arrays]:
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


@given(seats(), sizes)
def test_everything_is_allowed_until_a_mask_says_otherwise(entities, copies):
    record = make_observation_message(blocks_of(entities), copies)
    for block, mask in zip(blocks_of(entities), record.action_masks, strict=True):
        if block.spaces.mask_size:
            assert mask is not None and mask.shape == (copies, len(block.positions), block.spaces.mask_size)
            assert mask.all()
        else:
            assert mask is None


@given(seats())
def test_entities_of_equal_spaces_lie_together_in_order_of_appearance(entities):
    blocks = blocks_of(entities)
    assert sorted(position for block in blocks for position in block.positions) == list(range(len(entities)))
    assert [block.positions[0] for block in blocks] == sorted(block.positions[0] for block in blocks)
    kinds = [entity[1:] for entity in entities]
    for block in blocks:
        assert list(block.positions) == [i for i, kind in enumerate(kinds) if kind == kinds[block.positions[0]]]
        assert block.spaces._replace(team=None) == entities[block.positions[0]]
        assert block.spaces.team == Team(tuple(entities), block.positions)


@given(st.integers(1, 100), st.data())
def test_batches_share_the_copies_evenly(copies, data):
    batches = data.draw(st.integers(1, copies))
    slices = even_slices(copies, batches)
    assert [copy for part in slices for copy in range(part.start, part.stop)] == list(range(copies))
    lengths = [part.stop - part.start for part in slices]
    assert len(lengths) == batches
    assert max(lengths) - min(lengths) <= 1


@given(seats(), sizes)
def test_layouts_in_memory_that_is_given_lie_as_those_in_memory_of_their_own(entities, copies):
    blocks = blocks_of(entities)
    for lay_out in (make_observation_message, ActionMessage):
        own = lay_out(blocks, copies)
        memory = np.zeros(own.buffer.size, np.uint8)
        given_ = lay_out(blocks, copies, memory)
        assert given_.buffer.size == own.buffer.size
        np.testing.assert_array_equal(memory, own.buffer)
        memory.fill(3)
        assert given_.header[0] == np.full(8, 3, np.uint8).view(np.int64)


def test_an_observation_of_another_shape_names_who_returned_it():
    camera = EntitySpaces("camera", spaces.Dict(image=spaces.Box(0, 1, (2, 3))), spaces.Discrete(2))
    writer = SlotWriter(make_observation_message(blocks_of([camera]), 1).observations[0], 0, 0, "camera")
    with pytest.raises(ValueError, match=r"'camera': expected an observation of shape \(2, 3\).*found shape \(3, 2\)"):
        writer.write({"image": np.zeros((3, 2))})


def test_an_action_of_another_shape_is_refused_but_one_number_may_come_as_a_list_of_one():
    blocks = blocks_of([EntitySpaces("arm", spaces.Discrete(2), spaces.Box(-1, 1, (1,)))])
    message = ActionMessage(blocks, 1)
    put_action(message.actions[0][0, 0], 0.5)
    assert action_reader(message.actions[0], 0, 0)().tolist() == [0.5]
    with pytest.raises(ValueError, match=r"expected an action of shape \(1,\), found \(2,\)"):
        put_action(message.actions[0][0, 0], [0.5, 0.5])


def test_a_space_without_a_fixed_size_has_no_layout():
    with pytest.raises(TypeError, match="no wire format for the space Text.*expected Box, Discrete"):
        make_observation_message(blocks_of([EntitySpaces("poet", spaces.Text(5), spaces.Discrete(2))]), 1)


def timestep_of(entities: list[EntitySpaces], seed: int) -> Timestep:
    """Return a random timestep."""
    rng = np.random.default_rng(seed)
    for entity in entities:
        entity.observation.seed(seed)
    count = len(entities)
    flags = [[bool(flag) for flag in rng.integers(0, 2, count)] for _ in range(3)]
    masks = [rng.integers(0, 2, e.mask_size).astype(np.int8) if e.mask_size else None for e in entities]
    for entity, mask in zip(entities, masks, strict=True):
        for run in [] if mask is None else mask_runs(entity.action, mask):
            run[rng.integers(len(run))] = 1  # of each choice something is allowed
    return Timestep(
        [entity.observation.sample() for entity in entities],
        rng.normal(size=count).tolist(),
        flags[0],
        flags[1],
        [{}] * count,
        flags[2],
        masks,
        bool(rng.integers(2)),
    )


@settings(max_examples=60)
@given(seats(), st.integers(0, 2**20))
def test_what_one_process_puts_into_shared_memory_another_reads(entities: list[EntitySpaces], seed: int) -> None:
    size = Slot(entities).size
    descriptor = new_memory(size)
    ours, theirs = (Slot(entities, map_memory(descriptor, size)) for _ in range(2))
    os.close(descriptor)
    expected = timestep_of(entities, seed)
    theirs.put(expected)
    found = ours.timestep()
    for entity, one, other in zip(entities, found.observations, expected.observations, strict=True):
        same(one, other, entity.observation)
    for one, other in zip(found.action_masks, expected.action_masks, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.rewards, found.over) == (expected.rewards, expected.over)
    for name in ("terminated", "truncated", "acting"):
        assert list(getattr(found, name)) == list(getattr(expected, name))
    for entity in entities:
        entity.action.seed(seed)
    actions = [entity.action.sample() for entity in entities]
    ours.put_actions(actions)
    for entity, one, other in zip(entities, theirs.actions(), actions, strict=True):
        same(one, other, entity.action)
