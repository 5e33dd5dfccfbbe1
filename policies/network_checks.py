"""Checks of networks before a run: a first pass of each module that users have written."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from torch import nn

from arena.common.errors import ConfigError
from arena.common.registry import is_reference
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces
from arena.policies.distributions.of_spaces import distribution
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.parts import Part, parts_of
from arena.policies.encoders.users import UserEncoder, UserModule, sample
from arena.policies.own_network import OwnNetwork
from arena.policies.settings.networks import EncoderSettings, NetworkSettings

CLOSE = 1e-5
"""Largest difference, relative to 1 + the size of a number, of what is computed in another order."""

MOST_NAMES = 5
"""Names of parameters that a warning lists."""


def check_networks(spaces: EntitySpaces, settings: EncoderSettings, announce: Callable[[str], None]) -> list[str]:
    """Build the encoder of an observation, or a whole network, and read two observations by what users have written.

    Args:
      spaces: spaces of the entity.
      settings: settings of the networks.
      announce: called with the name of a class before its code runs.

    Returns:
      Warnings.

    Raises:
      ConfigError: something cannot be used; other exceptions are those of the user's code.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if isinstance(settings, NetworkSettings) and settings.network is not None:
            announce(settings.network)
            return _check_network(spaces, settings)
        parts = parts_of(spaces.observation, settings)
        _check_images(parts, spaces.observation)
        for part in parts:
            if is_reference(part.encoder.use):
                announce(part.encoder.use)
        warnings = []
        for part, module in zip(parts, Encoder(spaces.observation, settings).leaves, strict=True):
            if isinstance(module, UserEncoder):
                announce(part.encoder.use)
                observations = sample(part.space, rows=2, seed=0)
                warnings += _check(part.encoder.use, module, (observations,), ("features", module.width))
    return warnings


def _check_images(parts: Sequence[Part], space: gym_spaces.Space) -> None:
    """Check that ``impala`` has an image, if it is the encoder of something."""
    residual = [part for part in parts if part.encoder.use == "impala"]
    if residual and not any(part.is_convolved for part in residual):
        raise ConfigError(f"encoder: impala expects an image (a Box with two to four axes), found none in {space}")


def _check_network(spaces: EntitySpaces, settings: NetworkSettings) -> list[str]:
    """Check a whole network of a user; return warnings."""
    name, outputs = str(settings.network), distribution(spaces, settings.log_std_init).outputs
    network = OwnNetwork(spaces.observation, outputs, [], settings)
    observations = sample(spaces.observation, rows=2, seed=0)
    if not network.is_recurrent:
        return _check(name, network.own, (observations, None, None), ("outputs", outputs))
    state = torch.zeros(2, *network.state_shape)
    starts = torch.ones(1, 2, dtype=torch.bool)
    with torch.no_grad():
        result = network.own(observations, starts, state)
        after = result[2] if isinstance(result, tuple) and len(result) == 3 else None
        if not isinstance(after, torch.Tensor) or after.shape != state.shape:
            found = f"one of {list(after.shape)}" if isinstance(after, torch.Tensor) else f"{type(after).__name__}"
            raise ConfigError(
                f"{name!r}: expected (outputs, values, state) from forward, with a state of {list(state.shape)} for "
                f"two lanes, found {found}"
            )
        other = network.own(observations, starts, torch.ones_like(state))
        if not _are_close(other[0], result[0]):
            raise ConfigError(
                f"{name!r}: expected a state that counts as zeros where an episode starts (starts), found outputs that "
                "depend on it; multiply it by ~starts"
            )
        _check_sequence(name, network.own, observations, starts, state)
    return _check(name, network.own, (observations, starts, state), ("outputs", outputs))


def _check_sequence(name: str, own: UserModule, observations: Any, starts: torch.Tensor, state: torch.Tensor) -> None:
    """Check that three time steps together, as in learning, are three single ones, as in acting."""
    going = torch.cat((starts, ~starts, ~starts))
    together = own(map_tree(lambda x: torch.cat((x, x, x)), observations), going, state)
    for step in range(3):
        outputs, values, state = own(observations, going[step : step + 1], state)
        for whole, single in ((together[0], outputs), (together[1], values)):
            if whole.shape[0] != 6 or not _are_close(whole[2 * step : 2 * step + 2], single):
                raise ConfigError(
                    f"{name!r}: expected the same results for three time steps of two lanes together (observations [6, "
                    f"...], starts [3, 2], time first) as for three single ones, found others in step {step}"
                )


def _are_close(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and bool(((first - second).abs() <= CLOSE * (1 + second.abs())).all())


def _check(name: str, module: UserModule, inputs: tuple, result: tuple[str, int]) -> list[str]:
    """Check a user's module on the inputs of two rows; return warnings.

    Args:
      name: its name, for messages.
      module: the module.
      inputs: arguments of two rows; in a recurrent one, of one time step of two lanes.
      result: name and width of its first result.
    """
    statistics = [type(each).__name__ for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    if statistics and not module.is_frozen:
        raise ConfigError(
            f"{name!r}: expected no {statistics[0]}, since its statistics differ between workers; use LayerNorm, or "
            "normalize_observations"
        )
    with torch.no_grad():
        together = _check_result(name, module(*inputs), *result)
        apart = [_results(module(*(_row(each, row) for each in inputs))) for row in range(2)]
    for row, alone in enumerate(apart):
        if not all(_are_close(one[:1], both[row : row + 1]) for one, both in zip(alone, together, strict=True)):
            raise ConfigError(
                f"{name!r}: expected {result[0]} of an observation that do not depend on the others of a batch, found "
                "other ones for a row alone than beside another row; average over its own axes only"
            )
    buffers = {key: buffer.clone() for key, buffer in module.named_buffers()}
    learned = _results(module(*inputs))
    changed = [key for key, buffer in module.named_buffers() if not torch.equal(buffer, buffers[key])]
    if changed:
        raise ConfigError(
            f"{name!r}: expected a forward pass that leaves all buffers as they are, found a change of "
            f"{changed[0].removeprefix('module.')}: workers would come to differ in it; use layers without such a state"
        )
    return _warnings(name, module, learned)


def _row(tree: Any, row: int) -> Any:
    """Return one of two rows of a module's inputs; of ``starts`` ``[1, 2]`` a column."""
    if tree is None:
        return None
    if isinstance(tree, torch.Tensor) and tree.dtype == torch.bool and tree.shape == (1, 2):
        return tree[:, row : row + 1]
    return map_tree(lambda x: x[row : row + 1], tree)


def _results(found: Any) -> list[torch.Tensor]:
    """Return the features of an encoder, or outputs and values of a network."""
    return [found] if isinstance(found, torch.Tensor) else list(found[:2])


def _check_result(name: str, found: Any, what: str, width: int) -> list[torch.Tensor]:
    """Check the result for two rows; return its tensors."""
    if what == "outputs":
        if not (isinstance(found, tuple) and len(found) == 3):
            raise ConfigError(
                f"{name!r}: expected (outputs, values, state) from forward, found {type(found).__name__}"
                f"{f' of {len(found)}' if isinstance(found, tuple) else ''}"
            )
        shapes = {"outputs": (2, width), "values": (2,)}
    else:
        if not isinstance(found, torch.Tensor):
            raise ConfigError(f"{name!r}: expected a tensor [N, width] from forward, found {type(found).__name__}")
        shapes = {what: (2, width)}
    tensors = _results(found)
    for (key, shape), tensor in zip(shapes.items(), tensors, strict=True):
        if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != shape:
            why = f", since its width is {width}" if key == "features" else ""
            size = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise ConfigError(
                f"{name!r}: expected {key} of shape {list(shape)} for two observations{why}, found {size}"
            )
        if not tensor.is_floating_point() or not torch.isfinite(tensor).all():
            odd = "numbers that are not finite" if tensor.is_floating_point() else str(tensor.dtype)
            raise ConfigError(f"{name!r}: expected finite floats from forward, found {odd} in its first pass")
    return tensors


def _warnings(name: str, module: UserModule, results: list[torch.Tensor]) -> list[str]:
    warnings = []
    learned = {key: tensor for key, tensor in module.module.named_parameters() if tensor.requires_grad}
    differentiable = [result.sum() for result in results if result.requires_grad]
    if differentiable:
        torch.stack(differentiable).sum().backward()
    idle = [key for key, tensor in learned.items() if tensor.grad is None]
    if idle:
        more = f" and {len(idle) - MOST_NAMES} more" if len(idle) > MOST_NAMES else ""
        warnings.append(f"{name}: no gradient reaches {', '.join(idle[:MOST_NAMES])}{more}, which will not learn")
    has_dropout = any(isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0 for each in module.modules())
    if has_dropout and not module.is_frozen:
        warnings.append(
            f"{name} has dropout: it acts without (in eval mode) and learns with it, and a resumed run drops others"
        )
    return warnings
