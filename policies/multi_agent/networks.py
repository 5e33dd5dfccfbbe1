"""Networks of a team: actors that read their own observation, and critics that read state and all actions."""

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces as gym_spaces
from torch import nn
from torch.nn import functional

from arena.common.trees import map_tree
from arena.policies.encoders.composite import Encoder
from arena.policies.off_policy.networks import EncodedPerceptron, hidden_layers, perceptron
from arena.policies.settings.networks import Activation, EncoderSettings

USUAL = (64, 64)
"""Widths of the hidden layers by default."""


class NetworkSettings(EncoderSettings):
    """The settings of a team that shape its networks."""

    hidden: tuple[int, ...] | None
    activation: Activation


def actor(space: gym_spaces.Space, outputs: int, settings: NetworkSettings) -> EncodedPerceptron:
    """Return an actor for an observation space."""
    return EncodedPerceptron(
        space, outputs, hidden_layers(space, settings.hidden, USUAL, settings), settings.activation, settings
    )


def entities_outputs(actors: Sequence[nn.Module], observations: Any) -> torch.Tensor:
    """Return the outputs ``[B, k, outputs]`` of the k entities of a kind.

    Args:
      actors: the actor that they share, or one for each.
      observations: tensor ``[B, k, ...]``, or a nested dict or tuple of them.
    """
    if len(actors) > 1:
        outputs = [network(map_tree(lambda x, e=e: x[:, e], observations)) for e, network in enumerate(actors)]
        return torch.stack(outputs, 1)
    entities = _first(observations).shape[1]
    return actors[0](map_tree(lambda x: x.flatten(0, 1), observations)).unflatten(0, (-1, entities))


def _first(tree: Any) -> torch.Tensor:
    while not isinstance(tree, torch.Tensor):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


class KindCritic(nn.Module):
    """Values of the k entities of one kind, from the state, flags of presence, and all actions.

    A shared critic has a head for each entity.
    """

    def __init__(
        self,
        state: gym_spaces.Space,
        entities: int,
        actions: int,
        outputs: int,
        heads: int,
        settings: NetworkSettings,
        *,
        shared: bool,
    ) -> None:
        """Build the networks.

        Args:
          state: space of the global state.
          entities: K, entities of all kinds.
          actions: numbers of their actions together.
          outputs: values of each entity.
          heads: k, entities of this kind.
          settings: of the networks.
          shared: whether one network values all entities of this kind.
        """
        super().__init__()
        self._shape = heads, outputs
        of_state = settings.of_state()
        hidden = hidden_layers(state, settings.hidden, USUAL, of_state)
        encoders = [Encoder(state, of_state) for _ in range(1 if shared else heads)]
        inputs, width = encoders[0].width + entities + actions, outputs * heads if shared else outputs
        self.encoders = nn.ModuleList(encoders)
        self.each = nn.ModuleList(perceptron(inputs, hidden, width, settings.activation) for _ in encoders)

    def forward(self, state: Any, present: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Return values ``[B, k, outputs]``.

        Args:
          state: tensor ``[B, ...]``, or a nest of them.
          present: ``[B, K]``.
          actions: ``[B, actions]``, or ``[B, k, actions]`` where they differ between the entities that are valued.
        """
        results = []
        for e, (encoder, network) in enumerate(zip(self.encoders, self.each, strict=True)):
            own = actions if len(self.each) == 1 or actions.dim() == 2 else actions[:, e]
            results.append(_values(network, torch.cat((encoder(state), present), 1), own))
        if len(results) > 1 or self._shape[0] == 1:
            return torch.stack([values.flatten(1) for values in results], 1)
        values = results[0].unflatten(-1, self._shape)
        return values if actions.dim() == 2 else values.diagonal(dim1=1, dim2=2).movedim(2, 1)


def _values(network: nn.Module, features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Return the outputs of a perceptron that reads features ``[B, n]`` and actions ``[B, ...]``, side by side.

    The first layer reads the features once for all entities.
    """
    first, *rest = network.children()
    assert isinstance(first, nn.Linear)
    width = features.shape[1]
    hidden = functional.linear(features, first.weight[:, :width], first.bias)
    if actions.dim() == 3:
        hidden = hidden[:, None]
    hidden = hidden + functional.linear(actions, first.weight[:, width:])
    for layer in rest:
        hidden = layer(hidden)
    return hidden
