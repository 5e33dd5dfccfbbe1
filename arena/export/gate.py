"""Compares a file with the policy that it was made of, on observations that were really made, and refuses it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from arena.common.trees import map_tree, named_leaves, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.samples import ObservationSample
from arena.export.metadata import ExportError, ExportMetadata
from arena.export.runtimes import Run

BATCHES = (1, 7)  # beside all lanes at once: a file may be right for one batch size alone
FEWEST = 64  # observations that say enough
OTHER = "other."  # in front of the actions that follow where the likeliest ones are forbidden


class Tolerance(NamedTuple):
    """How far a file may be from the policy.

    Attributes:
      absolute, relative: of every number that the network says, within one of them; None where it is only told.
      agreement: share of the observations whose most likely action is the same.
    """

    absolute: float | None = 1e-4
    relative: float | None = 1e-3
    agreement: float = 1.0

    @classmethod
    def usual(cls, *, int8: bool) -> "Tolerance":
        """Return what is asked where nobody says otherwise: rounded weights say other numbers, rarely other acts."""
        return cls(None, None, 0.98) if int8 else cls()

    @classmethod
    def as_written(cls, about: ExportMetadata) -> "Tolerance":
        """Return what a file kept to when it was written, where that was let through with more than is usual."""
        usual, found = cls.usual(int8=bool(about.quantized)), about.checked
        absolute, relative = usual.absolute, usual.relative
        if absolute is not None and relative is not None:
            absolute = max(absolute, 1.1 * found.get("absolute", 0.0))
            relative = max(relative, 1.1 * found.get("relative", 0.0))
        return cls(absolute, relative, min(usual.agreement, found.get("agreement", 1.0)))


class OutputDifference(NamedTuple):
    """How far a file is from the policy.

    Attributes:
      rows: observations that were compared.
      absolute, relative: the greatest errors of what the network says of actions that are allowed.
      agreement: share of equal actions.
    """

    rows: int
    absolute: float
    relative: float
    agreement: float

    def __str__(self) -> str:
        """Return a line for the terminal."""
        return (
            f"{self.rows} observations: greatest error {self.absolute:.1e} (relative {self.relative:.1e}), "
            f"equal actions {100 * self.agreement:.2f} %"
        )


class SampleOutputs(NamedTuple):
    """What a policy says of a sample; arrays ``[T, L, ...]``.

    Attributes:
      outputs: of the network.
      actions: the leaves of the most likely actions.
      others: the same where the most likely ones are forbidden; empty without masks.
    """

    outputs: np.ndarray
    actions: list[np.ndarray]
    others: list[np.ndarray]

    def tensors(self, spaces_: EntitySpaces) -> dict[str, np.ndarray]:
        """Return named arrays, for the check file."""
        names = [leaf.name for leaf in named_leaves(spaces_.action, "action")]
        found = {"outputs": self.outputs, **dict(zip(names, self.actions, strict=True))}
        return found | {OTHER + name: leaf for name, leaf in zip(names, self.others, strict=False)}


def answers_from(tensors: dict[str, np.ndarray], spaces_: EntitySpaces, place: object) -> SampleOutputs:
    """Return what ``SampleOutputs.tensors`` has named.

    Raises:
      ExportError: something is missing.
    """
    names = [leaf.name for leaf in named_leaves(spaces_.action, "action")]
    others = [OTHER + name for name in names] if spaces_.mask_size else []
    missing = [name for name in ("outputs", *names, *others) if name not in tensors]
    if missing:
        raise ExportError(f"{place}: expected the outputs of the policy, found no {missing[0]}")
    return SampleOutputs(tensors["outputs"], [tensors[name] for name in names], [tensors[name] for name in others])


def run_policy(policy: Any, inference: Any, about: ExportMetadata, sample: ObservationSample) -> SampleOutputs:
    """Return what a policy says: its actions as it plays, and the numbers behind them by its module.

    Args:
      policy: with as many lanes as the sample has.
      inference: its ``inference()``.
      about: says what it is.
      sample: the observations.
    """
    import torch

    def module(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in inference.module(*map(torch.from_numpy, inputs))]

    outputs = _ask(module, about.state, sample, slice(None))[0]
    actions = _play(policy, sample)
    if sample.action_mask is None:
        return SampleOutputs(outputs, actions, [])
    return SampleOutputs(
        outputs, actions, _play(policy, sample._replace(action_mask=_forbid(sample, actions, about.spaces)))
    )


def _play(policy: Any, sample: ObservationSample) -> list[np.ndarray]:
    """Return the leaves of a policy's most likely actions ``[T, L, ...]``."""
    slots, lanes = sample.starts.shape
    found = []
    for slot in range(slots):
        decision = policy.act(
            map_tree(lambda leaf, slot=slot: leaf[slot], sample.observations),
            action_mask=None if sample.action_mask is None else sample.action_mask[slot],
            starts=sample.starts[slot],
            lanes=slice(0, lanes),
            deterministic=True,
        )
        found.append([np.array(leaf) for leaf in tree_leaves(decision.actions)])
    return [np.stack(leaves) for leaves in zip(*found, strict=True)]


def _ask(run: Run, state_shape: tuple[int, ...] | None, sample: ObservationSample, lanes: slice) -> list[np.ndarray]:
    """Return a file's outputs ``[T, lanes, ...]``, the memory of each slot from the one before."""
    count = sample.starts[0, lanes].size
    state = None if state_shape is None else np.zeros((count, *state_shape), np.float32)
    found = []
    for slot in range(len(sample.starts)):
        inputs = [np.ascontiguousarray(leaf[slot, lanes]) for leaf in tree_leaves(sample.observations)]
        if sample.action_mask is not None:
            inputs.append(np.ascontiguousarray(sample.action_mask[slot, lanes]))
        if state is not None:
            inputs += [state, np.ascontiguousarray(sample.starts[slot, lanes])]
        outputs = run(inputs)
        if state is not None:
            state = outputs.pop()
        found.append(outputs)
    return [np.stack(leaves) for leaves in zip(*found, strict=True)]


def _forbid(sample: ObservationSample, actions: Sequence[np.ndarray], spaces_: EntitySpaces) -> np.ndarray:
    """Return masks that also forbid the given choices, where others are left."""
    assert sample.action_mask is not None
    mask = sample.action_mask.copy()
    first = 0
    for leaf, chosen in zip(named_leaves(spaces_.action, "action"), actions, strict=True):
        for size, start, column in _choices(leaf.space, chosen):
            part = mask[..., first : first + size]
            several = np.count_nonzero(part, -1) > 1
            slots, lanes = np.nonzero(several)
            part[slots, lanes, column[slots, lanes] - start] = 0
            first += size
    return mask


def _choices(space: spaces.Space, chosen: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield size, first number and what was chosen ``[T, L]`` of each choice that has flags."""
    if isinstance(space, spaces.Discrete):
        yield int(space.n), int(space.start), chosen
    elif isinstance(space, spaces.MultiDiscrete):
        columns = np.moveaxis(chosen.reshape(*chosen.shape[:2], -1), -1, 0)
        for size, start, column in zip(space.nvec.ravel(), space.start.ravel(), columns, strict=True):
            yield int(size), int(start), column


def check(
    run: Run,
    about: ExportMetadata,
    sample: ObservationSample,
    answers: SampleOutputs,
    tolerance: Tolerance,
    place: object,
) -> OutputDifference:
    """Return how far a file is from what the policy says, in batches of 1, 7 and all lanes.

    Args:
      run: runs the file.
      about: says what it is.
      sample: the observations.
      answers: what the policy says of them.
      tolerance: how far it may be.
      place: of the file, for messages.

    Raises:
      ExportError: it is further, or fails; the sentence says where and by how much.
    """
    count = sample.starts.shape[1]
    found = [_compare(run, about.state, sample, answers, slice(None), tolerance, place)]
    for size in BATCHES:
        batches = [slice(start, min(start + size, count)) for start in range(0, min(count, FEWEST), size)]
        found.append(_joined(_compare(run, about.state, sample, answers, lanes, tolerance, place) for lanes in batches))
    if answers.others:
        masked = sample._replace(action_mask=_forbid(sample, answers.actions, about.spaces))
        others = answers._replace(actions=answers.others, others=[])
        found.append(_compare(run, about.state, masked, others, slice(None), tolerance, place, only_actions=True))
    whole = OutputDifference(
        sample.rows,
        max(part.absolute for part in found),
        max(part.relative for part in found),
        min(part.agreement for part in found),
    )
    if whole.agreement < tolerance.agreement:
        raise ExportError(
            f"{place}: expected the policy's actions on {100 * tolerance.agreement:g} % of {whole.rows} observations, "
            f"found them on {100 * whole.agreement:.2f} %"
        )
    return whole


def _joined(parts: Iterable[OutputDifference]) -> OutputDifference:
    """Return the agreement of batches of one size as one."""
    rows, absolute, relative, agreement = zip(*parts, strict=True)
    equal = sum(count * share for count, share in zip(rows, agreement, strict=True))
    return OutputDifference(sum(rows), max(absolute), max(relative), equal / sum(rows))


def _compare(
    run: Run,
    state_shape: tuple[int, ...] | None,
    sample: ObservationSample,
    answers: SampleOutputs,
    lanes: slice,
    tolerance: Tolerance,
    place: object,
    *,
    only_actions: bool = False,
) -> OutputDifference:
    try:
        outputs, *actions = _ask(run, state_shape, sample, lanes)
    except Exception as error:
        size = sample.starts[0, lanes].size
        raise ExportError(f"{place}: it fails on a batch of {size} ({str(error).strip().splitlines()[0]})") from None
    absolute = relative = 0.0
    if not only_actions:
        absolute, relative = _errors(outputs, answers.outputs[:, lanes], tolerance, place)
    equal = np.ones(sample.starts[:, lanes].shape, bool)
    for leaf, expected in zip(actions, answers.actions, strict=True):
        theirs = expected[:, lanes]
        if leaf.shape != theirs.shape or leaf.dtype != theirs.dtype:
            raise ExportError(
                f"{place}: expected actions as {theirs.dtype} {list(theirs.shape)}, "
                f"found {leaf.dtype} {list(leaf.shape)}"
            )
        same = leaf == theirs
        if np.issubdtype(leaf.dtype, np.floating):
            same |= np.isclose(leaf, theirs, tolerance.relative or 1e-3, tolerance.absolute or 1e-4)
        equal &= same.reshape(*equal.shape, -1).all(-1)
    return OutputDifference(equal.size, absolute, relative, float(equal.mean()))


def _errors(found: np.ndarray, expected: np.ndarray, tolerance: Tolerance, place: object) -> tuple[float, float]:
    """Return the greatest absolute and relative error."""
    if found.shape != expected.shape:
        raise ExportError(f"{place}: expected outputs of shape {list(expected.shape)}, found {list(found.shape)}")
    absolute = np.abs(found.astype(np.float64) - expected)
    absolute = np.where(np.isfinite(absolute), absolute, np.inf)
    relative = absolute / np.maximum(np.abs(expected), 1e-12)
    if tolerance.absolute is not None and tolerance.relative is not None:
        beyond = (absolute > tolerance.absolute) & (relative > tolerance.relative)
        if beyond.any():
            where = np.unravel_index(np.where(beyond, absolute, 0).argmax(), absolute.shape)
            raise ExportError(
                f"{place}: expected the policy's numbers within {tolerance.absolute:g} or a share of "
                f"{tolerance.relative:g}, found {found[where]:.6g} for {expected[where]:.6g} (slot {where[0]}, lane "
                f"{where[1]}, number {where[2]}); {int(beyond.sum())} of {beyond.size} are too far"
            )
    share = relative[np.abs(expected) > 1e-3]  # a relative error of next to nothing says nothing
    return float(absolute.max(initial=0.0)), float(share.max(initial=0.0))
