"""The two implementations of PPO's computations on an actor-critic: the torch path and the compiled path."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch

from arena.common.trees import map_tree
from arena.experience.rollout import Rollout
from arena.policies.compiled.actor_critic import CompiledActorCritic
from arena.policies.compiled.adam import FlatAdam
from arena.policies.distributions import Distribution
from arena.policies.networks import ActorCritic, NetworkOutput
from arena.policies.ppo_loss import Batch, loss, loss_gradients
from arena.policies.settings import PPOSettings
from arena.tensors.gradients import FlatGradient

CHUNK_SAMPLES = 1024
"""Samples of a rollout that are evaluated in one call: layer outputs of this size stay in the caches."""


class RecurrentInputs(NamedTuple):
    """Inputs of a recurrent network for a whole rollout: time steps and lanes are one leading axis, time first.

    Attributes:
      valid: ``[T * L]``, whether there is a transition.
      starts: ``[T * L]``, whether an episode starts.
      states: ``[T * L, rows, width]``, recurrent state before the time step.
    """

    valid: torch.Tensor
    starts: torch.Tensor
    states: torch.Tensor


def flat(array: np.ndarray) -> np.ndarray:
    """Return a view ``[T * L, ...]`` of an array ``[T, L, ...]``."""
    return array.reshape(-1, *array.shape[2:])


Outputs = tuple[np.ndarray, np.ndarray | None, torch.Tensor | None]
"""Outputs ``[N, ...]``, values ``[N]``, and next recurrent state: a plain tuple, since one is made in every step."""


class Path(ABC):
    """Computations of PPO on an actor-critic, with arrays in and out."""

    def __init__(self, networks: ActorCritic, distribution: Distribution, gradient: FlatGradient) -> None:
        """Create the path; ``gradient`` is the buffer that ``loss_gradients`` writes."""
        self._networks, self._distribution, self._gradient = networks, distribution, gradient
        self._on_cpu = networks.free.device.type == "cpu"
        self._parameters_view = networks.free.detach().cpu().numpy()  # on the CPU it follows the optimizer's steps

    @property
    def distribution_parameters(self) -> np.ndarray:
        """The distribution's learned parameters."""
        return self._parameters_view if self._on_cpu else self._networks.free.numpy(force=True)

    @abstractmethod
    def act(
        self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None, *, with_values: bool
    ) -> Outputs:
        """Return the outputs, the values and the next recurrent state for N observations.

        Args:
          observations: ``[N, ...]``, or a nest of such arrays.
          starts: ``[N]``, whether an episode starts; None for none.
          state: ``[N, rows, width]``, recurrent state before the time step; None for feed-forward networks.
          with_values: whether the values are required; without, they are None where ``complete`` computes them.
        """

    @abstractmethod
    def values(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> np.ndarray:
        """Return the values ``[N]`` of N observations; arguments as in ``act``."""

    @abstractmethod
    def complete(self, rollout: Rollout) -> None:
        """Compute the values and log probabilities of a rollout that ``act`` has left out."""

    @abstractmethod
    def batched(self, array: np.ndarray) -> Any:
        """Return an array, or indices of one, in the form that ``loss_gradients`` reads."""

    @abstractmethod
    def recurrent_inputs(self, rollout: Rollout) -> RecurrentInputs | None:
        """Return the inputs of a recurrent network for a rollout; None for feed-forward networks."""

    @abstractmethod
    def next_state(self, rollout: Rollout, steps: slice, lanes: slice) -> torch.Tensor:
        """Return the recurrent state ``[lanes, rows, width]`` after some time steps, from that stored before them."""

    @abstractmethod
    def loss_gradients(
        self, batch: Batch, inputs: RecurrentInputs | None, rows: Any, chosen: Any, settings: PPOSettings
    ) -> None:
        """Write the gradient of the loss over a minibatch, followed by ``LOSSES``.

        Args:
          batch: transitions ``[T * L]``.
          inputs: as returned by ``recurrent_inputs``.
          rows: indices to evaluate; for recurrent networks all time steps of some lanes, ``[T, lanes]``.
          chosen: indices of the transitions among them.
          settings: coefficients of the loss.
        """

    def gradient_moved(self) -> None:  # noqa: B027 (only one of the paths holds views)
        """Adapt to a gradient buffer at another address."""


class TorchPath(Path):
    """The networks evaluated and differentiated by torch: any observations, any device, recurrent or not."""

    def act(
        self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None, *, with_values: bool
    ) -> Outputs:
        """See ``Path``; the values are always computed."""
        with torch.inference_mode():
            step_starts = None
            if state is not None:
                step_starts = self.batched(np.zeros(len(state), bool) if starts is None else starts).unsqueeze(0)
            output = self._networks(map_tree(self.batched, observations), step_starts, state)
            return output.outputs.numpy(force=True), output.values.numpy(force=True), output.state

    def values(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> np.ndarray:
        """See ``Path``."""
        values = self.act(observations, starts, state, with_values=True)[1]
        assert values is not None
        return values

    def complete(self, rollout: Rollout) -> None:
        """Do nothing: ``act`` has computed everything."""

    def batched(self, array: np.ndarray) -> torch.Tensor:
        """Return the array as a tensor on the networks' device."""
        return torch.from_numpy(array).to(self._networks.free.device)

    def recurrent_inputs(self, rollout: Rollout) -> RecurrentInputs | None:
        """See ``Path``."""
        if "memory" not in rollout.extras:
            return None
        arrays = rollout.valid, rollout.starts[:-1], rollout.extras["memory"][:-1]
        return RecurrentInputs(*(self.batched(flat(array)) for array in arrays))

    def next_state(self, rollout: Rollout, steps: slice, lanes: slice) -> torch.Tensor:
        """See ``Path``."""
        with torch.inference_mode():
            observations = map_tree(lambda array: self.batched(flat(array[steps, lanes])), rollout.observations)
            starts = self.batched(rollout.starts[steps, lanes])
            return self._networks(
                observations, starts, self.batched(rollout.extras["memory"][steps.start, lanes])
            ).state

    def loss_gradients(
        self, batch: Batch, inputs: RecurrentInputs | None, rows: Any, chosen: Any, settings: PPOSettings
    ) -> None:
        """See ``Path``."""
        self._gradient.zero()
        if inputs is None:
            minibatch = batch.at(chosen)
            output = self._networks(minibatch.observations)
        else:
            minibatch = batch._replace(observations=()).at(chosen)
            observations = map_tree(lambda leaf: leaf[rows.flatten()], batch.observations)
            output = self._networks(observations, inputs.starts[rows], inputs.states[rows[0]])
            inside = inputs.valid[rows.flatten()]
            output = NetworkOutput(output.outputs[inside], output.values[inside], None)
        objective, losses = loss(
            output.outputs, output.values, self._networks.free, minibatch, self._distribution, settings
        )
        objective.backward()
        self._gradient.extras.copy_(losses)


class CompiledPath(Path):
    """The networks in compiled loops with closed-form gradients, for networks that ``serves`` accepts."""

    def __init__(
        self, networks: ActorCritic, distribution: Distribution, gradient: FlatGradient, optimizer: FlatAdam
    ) -> None:
        """Create the path; ``optimizer`` holds the vector of all parameters."""
        super().__init__(networks, distribution, gradient)
        self._parameters = optimizer.parameters.numpy()
        self.gradient_moved()

    @staticmethod
    def serves(networks: ActorCritic) -> bool:
        """Return whether the networks can be computed: vector observations, feed-forward, on the CPU."""
        return CompiledActorCritic.serves(networks)

    def gradient_moved(self) -> None:
        """See ``Path``."""
        self._compiled = CompiledActorCritic(self._networks, self._parameters, self._gradient.values.numpy())

    def act(
        self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None, *, with_values: bool
    ) -> Outputs:
        """See ``Path``; one pass over a rollout in ``complete`` is cheaper than values in each step."""
        if with_values:
            return *self._compiled.forward(observations), None
        return self._compiled.act(observations), None, None

    def values(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> np.ndarray:
        """See ``Path``."""
        return self._compiled.values(observations)

    def complete(self, rollout: Rollout) -> None:
        """See ``Path``."""
        observations, choice = flat(rollout.observations), flat(rollout.extras["choice"])
        mask = None if rollout.action_mask is None else flat(rollout.action_mask)
        value, log_prob = flat(rollout.extras["value"]), flat(rollout.extras["log_prob"])
        parameters = self.distribution_parameters
        for start in range(0, len(choice), CHUNK_SAMPLES):
            part = slice(start, start + CHUNK_SAMPLES)
            outputs, value[part] = self._compiled.forward(observations[part])
            allowed = None if mask is None else mask[part]
            log_prob[part] = self._distribution.differentiate(outputs, parameters, choice[part], allowed).log_prob

    def batched(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def recurrent_inputs(self, rollout: Rollout) -> None:
        """Return None: the networks are feed-forward."""

    def next_state(self, rollout: Rollout, steps: slice, lanes: slice) -> torch.Tensor:
        """Raise: the networks are feed-forward."""
        raise NotImplementedError("compiled networks have no recurrent state")

    def loss_gradients(
        self, batch: Batch, inputs: RecurrentInputs | None, rows: Any, chosen: Any, settings: PPOSettings
    ) -> None:
        """See ``Path``."""
        minibatch, networks = batch.at(chosen), self._networks
        outputs, values = self._compiled.forward(minibatch.observations)
        gradients = loss_gradients(
            outputs, values, self.distribution_parameters, minibatch, self._distribution, settings
        )
        # It overwrites the gradients of all layers, so that no zeroing is needed.
        self._compiled.backward(gradients.outputs, gradients.values)
        if networks.free.grad is not None:
            networks.free.grad.numpy()[...] = gradients.parameters
        with np.errstate(over="ignore"):  # a value that is not finite is reported later, with its cause
            self._gradient.extras.numpy()[...] = gradients.losses
