"""Built-in policies by name, and their weights from files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from arena.common.errors import ConfigError
from arena.common.registry import policy_class, policy_settings_model
from arena.envs.interface import EntitySpaces
from arena.policies.interface import Policy
from arena.tensors.weights import read_tensors

ENCODER = "encoder."
OTHERS = ("critic", "target.", "network.critic", "magnet.", "adam.")
"""Beginnings of the names of encoders that do not act, in weights and in checkpoints."""

NETWORK = "network."  # prefix of the weights' names in a checkpoint, which holds more than weights


def build(use: str, spaces: EntitySpaces, settings: Any, *, lanes: int, seed: int, device: str = "cpu") -> Policy:
    """Return an act-learn policy.

    Args:
      use: the name of a built-in policy that separates ``act`` from ``learn``, or a reference to a class that does.
      spaces: spaces of each lane.
      settings: a mapping, or the policy's own settings model.
      lanes: number of lanes: copies times entities.
      seed: seed of this worker's random streams.
      device: device of the networks.

    Raises:
      ConfigError: the policy does not exist, its settings are wrong, or it does not support the spaces.
    """
    cls = policy_class(use)
    if not hasattr(cls, "act") or not hasattr(cls, "learn"):
        raise ConfigError(f"policy {use!r}: expected one that acts without an environment, found {cls.__name__}")
    model = policy_settings_model(use) or getattr(cls, "Settings", None)
    if model is not None and not isinstance(settings, BaseModel):
        try:
            settings = model(**(settings or {}))
        except ValidationError as error:
            raise ConfigError(f"settings of policy {use!r}: {explain(error)}") from error
    return cls(spaces, settings, lanes=lanes, seed=seed, device=device)


def explain(error: ValidationError) -> str:
    """Return pydantic's errors in one line."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}, found {item['input']!r}".removeprefix(": ")
        for item in error.errors()
    )


def load_weights(policy: Policy, path: str | Path) -> None:
    """Load the weights or the state of a policy from a safetensors file.

    Raises:
      ConfigError: the file cannot be read, or its tensors do not fit the policy.
    """
    tensors = read_tensors(Path(path))
    weights = {name[len(NETWORK) :]: array for name, array in tensors.items() if name.startswith(NETWORK)}
    try:
        policy.load_weights(weights or tensors)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_encoder_weights(policy: Any, path: str | Path) -> None:
    """Load the encoder of the observation alone, from the weights of any built-in policy or of a user's module.

    Raises:
      ConfigError: the file cannot be read, or its tensors do not fit the encoder.
    """
    tensors = read_tensors(Path(path))
    encoders = [encoder for encoder in policy.encoders() if encoder.given_parts]
    own = f"leaves.{encoders[0].given_parts[0]}.module."
    module = {name.removeprefix(own) for name in encoders[0].state_dict() if name.startswith(own)}
    try:
        if module and module <= tensors.keys():  # weights of a module of the user's own
            found = {own + name: tensors[name] for name in module}
        else:
            found = _of_encoder(tensors)
        for encoder in encoders:
            encoder.load(found)
    except ConfigError as error:
        raise ConfigError(f"encoder_weights: {path}: {error}") from error


def _of_encoder(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of the encoder that acts in the weights of a policy, by their names in the encoder."""
    names = (name for name in tensors if f"{ENCODER}leaves." in name and not name.startswith(OTHERS))
    first = next(names, None)
    if first is None:
        raise ConfigError("expected weights of a policy with an encoder, found none")
    prefix = first[: first.index(ENCODER) + len(ENCODER)]
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
