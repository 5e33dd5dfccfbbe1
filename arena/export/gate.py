"""Comparison of a file with the policy that it was made from, on real observations; a file that differs is rejected."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from arena.common.trees import map_tree, named_leaves, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.samples import ObservationSample
from arena.export.metadata import ExportError, ExportMetadata
from arena.export.runtimes import Run

BATCHES = (1, 7)  # besides all lanes in one batch: a file may be right for one batch size only
FEWEST = 64  # least number of observations that are evidence
OTHER = "other."  # prefix of the actions for masks that forbid the most likely ones


class Tolerance(NamedTuple):
    """Largest allowed difference of a file from the policy.

    Attributes:
      absolute, relative: bounds of every output, of which one must hold; None to report errors only.
      agreement: required share of observations with equal most likely actions.
    """

    absolute: float | None = 1e-4
    relative: float | None = 1e-3
    agreement: float = 1.0

    @classmethod
    def usual(cls, *, int8: bool) -> "Tolerance":
        """Return the default tolerance: rounded weights change outputs, rarely actions."""
        return cls(None, None, 0.98) if int8 else cls()

    @classmethod
    def as_written(cls, about: ExportMetadata) -> "Tolerance":
        """Return the tolerance of a file that was written with more than the default, else the default."""
        usual, checked = cls.usual(int8=bool(about.quantized)), about.checked
        absolute, relative = usual.absolute, usual.relative
        if absolute is not None and relative is not None:
            absolute = max(absolute, 1.1 * checked.get("absolute", 0.0))
            relative = max(relative, 1.1 * checked.get("relative", 0.0))
        return cls(absolute, relative, min(usual.agreement, checked.get("agreement", 1.0)))


class OutputDifference(NamedTuple):
    """Difference of a file from the policy.

    Attributes:
      rows: number of compared observations.
      absolute, relative: largest errors of the outputs of allowed actions.
      agreement: share of equal actions.
    """

    rows: int
    absolute: float
    relative: float
    agreement: float

    def __str__(self) -> str:
        """Return the differences in a line."""
        return (
            f"{self.rows} observations: greatest error {self.absolute:.1e} (relative {self.relative:.1e}), "
            f"equal actions {100 * self.agreement:.2f} %"
        )


class SampleOutputs(NamedTuple):
    """Outputs of a policy for a sample; arrays ``[T, L, ...]``.

    Attributes:
      outputs: outputs of the network.
      actions: the leaves of the most likely actions.
      others: the same for masks that forbid the most likely ones; empty without masks.
    """

    outputs: np.ndarray
    actions: list[np.ndarray]
    others: list[np.ndarray]

    def tensors(self, spaces_: EntitySpaces) -> dict[str, np.ndarray]:
        """Return named arrays, for the check file."""
        names = [leaf.name for leaf in named_leaves(spaces_.action, "action")]
        tensors = {"outputs": self.outputs, **dict(zip(names, self.actions, strict=True))}
        return tensors | {OTHER + name: leaf for name, leaf in zip(names, self.others, strict=False)}


def answers_from(tensors: dict[str, np.ndarray], spaces_: EntitySpaces, place: object) -> SampleOutputs:
    """Return the outputs named by ``SampleOutputs.tensors``.

    Raises:
      ExportError: an array is missing.
    """
    names = [leaf.name for leaf in named_leaves(spaces_.action, "action")]
    others = [OTHER + name for name in names] if spaces_.mask_size else []
    missing = [name for name in ("outputs", *names, *others) if name not in tensors]
    if missing:
        raise ExportError(f"{place}: expected the outputs of the policy, found no {missing[0]}")
    return SampleOutputs(tensors["outputs"], [tensors[name] for name in names], [tensors[name] for name in others])


def run_policy(policy: Any, inference: Any, about: ExportMetadata, sample: ObservationSample) -> SampleOutputs:
    """Return a policy's outputs: its actions when it acts, and the outputs of its module.

    Args:
      policy: the policy, with as many lanes as the sample has.
      inference: result of its ``inference()``.
      about: description of the policy.
      sample: the observations.
    """
    import torch

    def module(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in inference.module(*map(torch.from_numpy, inputs))]

    outputs = _run_file(module, about.state, sample, slice(None))[0]
    actions = _play(policy, sample)
    if sample.action_mask is None:
        return SampleOutputs(outputs, actions, [])
    return SampleOutputs(
        outputs, actions, _play(policy, sample._replace(action_mask=_forbid(sample, actions, about.spaces)))
    )


def _play(policy: Any, sample: ObservationSample) -> list[np.ndarray]:
    """Return the leaves of a policy's most likely actions ``[T, L, ...]``."""
    slots, lanes = sample.starts.shape
    outputs = []
    for slot in range(slots):
        decision = policy.act(
            map_tree(lambda leaf, slot=slot: leaf[slot], sample.observations),
            action_mask=None if sample.action_mask is None else sample.action_mask[slot],
            starts=sample.starts[slot],
            lanes=slice(0, lanes),
            deterministic=True,
        )
        outputs.append([np.array(leaf) for leaf in tree_leaves(decision.actions)])
    return [np.stack(leaves) for leaves in zip(*outputs, strict=True)]


def _run_file(
    run: Run, state_shape: tuple[int, ...] | None, sample: ObservationSample, lanes: slice
) -> list[np.ndarray]:
    """Return a file's outputs ``[T, lanes, ...]``, passing the recurrent state from step to step."""
    count = sample.starts[0, lanes].size
    state = None if state_shape is None else np.zeros((count, *state_shape), np.float32)
    steps = []
    for slot in range(len(sample.starts)):
        inputs = [np.ascontiguousarray(leaf[slot, lanes]) for leaf in tree_leaves(sample.observations)]
        if sample.action_mask is not None:
            inputs.append(np.ascontiguousarray(sample.action_mask[slot, lanes]))
        if state is not None:
            inputs += [state, np.ascontiguousarray(sample.starts[slot, lanes])]
        outputs = run(inputs)
        if state is not None:
            state = outputs.pop()
        steps.append(outputs)
    return [np.stack(leaves) for leaves in zip(*steps, strict=True)]


def _forbid(sample: ObservationSample, actions: Sequence[np.ndarray], spaces_: EntitySpaces) -> np.ndarray:
    """Return masks that also forbid the chosen actions, where others are left."""
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
    """Yield size, first index and chosen values ``[T, L]`` of each choice with flags."""
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
    """Return the difference of a file from the policy's outputs, in batches of 1, 7 and all lanes.

    Args:
      run: runs the file.
      about: description of the file.
      sample: the observations.
      answers: the policy's outputs for them.
      tolerance: largest allowed difference.
      place: path of the file, for messages.

    Raises:
      ExportError: the difference is larger, or the file fails; the sentence states where and by how much.
    """
    count = sample.starts.shape[1]
    results = [_compare(run, about.state, sample, answers, slice(None), tolerance, place)]
    for size in BATCHES:
        batches = [slice(start, min(start + size, count)) for start in range(0, min(count, FEWEST), size)]
        results.append(
            _joined(_compare(run, about.state, sample, answers, lanes, tolerance, place) for lanes in batches)
        )
    if answers.others:
        masked = sample._replace(action_mask=_forbid(sample, answers.actions, about.spaces))
        others = answers._replace(actions=answers.others, others=[])
        results.append(_compare(run, about.state, masked, others, slice(None), tolerance, place, only_actions=True))
    whole = OutputDifference(
        sample.rows,
        max(part.absolute for part in results),
        max(part.relative for part in results),
        min(part.agreement for part in results),
    )
    if whole.agreement < tolerance.agreement:
        raise ExportError(
            f"{place}: expected the policy's actions on {100 * tolerance.agreement:g} % of {whole.rows} observations, "
            f"found them on {100 * whole.agreement:.2f} %"
        )
    return whole


def _joined(parts: Iterable[OutputDifference]) -> OutputDifference:
    """Return the differences of batches of one size as one."""
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
        outputs, *actions = _run_file(run, state_shape, sample, lanes)
    except Exception as error:
        size = sample.starts[0, lanes].size
        raise ExportError(
            f"{place}: it fails on a batch of {size} ({str(error).strip().splitlines()[0]}); in an encoder of one's "
            "own, x.shape[0] is the number of rows of any batch, and len(x) that of the traced one"
        ) from None
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


def _errors(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance, place: object) -> tuple[float, float]:
    """Return the largest absolute and relative error."""
    if actual.shape != expected.shape:
        raise ExportError(f"{place}: expected outputs of shape {list(expected.shape)}, found {list(actual.shape)}")
    absolute = np.abs(actual.astype(np.float64) - expected)
    absolute = np.where(np.isfinite(absolute), absolute, np.inf)
    relative = absolute / np.maximum(np.abs(expected), 1e-12)
    if tolerance.absolute is not None and tolerance.relative is not None:
        beyond = (absolute > tolerance.absolute) & (relative > tolerance.relative)
        if beyond.any():
            where = np.unravel_index(np.where(beyond, absolute, 0).argmax(), absolute.shape)
            raise ExportError(
                f"{place}: expected the policy's numbers within {tolerance.absolute:g} or a share of "
                f"{tolerance.relative:g}, found {actual[where]:.6g} for {expected[where]:.6g} (slot {where[0]}, lane "
                f"{where[1]}, number {where[2]}); {int(beyond.sum())} of {beyond.size} are too far"
            )
    share = relative[np.abs(expected) > 1e-3]  # a relative error of a value near zero is meaningless
    return float(absolute.max(initial=0.0)), float(share.max(initial=0.0))
