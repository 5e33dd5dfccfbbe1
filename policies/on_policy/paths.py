"""The two implementations of PPO's computations on an actor-critic: the torch path and the compiled path."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch

from arena.common.trees import map_tree
from arena.experience.rollout import Rollout
from arena.policies.compiled.actor_critic import CompiledActorCritic
from arena.policies.compiled.adam import FlatAdam
from arena.policies.distributions.base import Distribution
from arena.policies.networks import ActorCritic, NetworkOutput, PolicyAndValue
from arena.policies.on_policy.loss import Batch, loss, loss_gradients, select_rows
from arena.policies.on_policy.settings import PPOSettings
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
    """Computations of PPO on an actor-critic, with arrays in and out.

    The values of a central critic are computed in ``complete``: acting does not read the global state.

    Attributes:
      completes_log_probs: whether ``complete`` computes the log probabilities, too.
    """

    completes_log_probs = False

    def __init__(self, networks: PolicyAndValue, distribution: Distribution, gradient: FlatGradient) -> None:
        """Create the path; ``gradient`` is the buffer that ``loss_gradients`` writes."""
        self._networks, self._distribution, self._gradient = networks, distribution, gradient
        self._on_cpu = networks.free.device.type == "cpu"
        self._central = networks.has_central_critic
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
    def complete(self, rollout: Rollout, states: torch.Tensor) -> None:
        """Compute the values and log probabilities of a rollout that ``act`` has not computed.

        Args:
          rollout: a rollout that is complete but for these.
          states: ``[lanes, rows, width]``, recurrent states; those of a central critic are brought from time step 0 to
            the last one, and stored in the rollout.
        """

    def _values(self, outputs: Any) -> Any:
        """Return the values for outputs of the value network."""
        scale = self._networks.value_scale
        return outputs if scale is None else scale.values(outputs)

    @abstractmethod
    def batched(self, array: np.ndarray) -> Any:
        """Return an array, or indices of one, in the form that ``loss_gradients`` reads."""

    def arranged(self, observations: Any) -> Any:
        """Return batched observations in the order in memory in which ``loss_gradients`` reads them fastest."""
        return observations

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
        """See ``Path``; the values are always computed, but those of a central critic."""
        networks = self._networks
        with torch.inference_mode():
            step_starts = None
            if state is not None:
                step_starts = self.batched(np.zeros(len(state), bool) if starts is None else starts).unsqueeze(0)
            tensors = map_tree(self.batched, observations)
            if self._central:
                rows = networks.policy_rows
                outputs, after = networks.policy(tensors, step_starts, None if state is None else state[:, :rows])
                if state is not None and after is not None:
                    after = torch.cat((after, state[:, rows:]), 1)
                return outputs.numpy(force=True), None, after
            output = networks(tensors, step_starts, state)
            return output.outputs.numpy(force=True), self._values(output.values.numpy(force=True)), output.state

    def values(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> np.ndarray:
        """See ``Path``."""
        values = self.act(observations, starts, state, with_values=True)[1]
        assert values is not None
        return values

    def complete(self, rollout: Rollout, states: torch.Tensor) -> None:
        """See ``Path``; without a central critic, ``act`` has computed everything."""
        if not self._central:
            return
        with torch.inference_mode():
            if "memory" in rollout.extras:
                self._complete_recurrent(rollout, states)
            else:
                self._complete_feed_forward(rollout)

    def _complete_feed_forward(self, rollout: Rollout) -> None:
        value = flat(rollout.extras["value"])
        for start in range(0, len(value), CHUNK_SAMPLES):
            part = slice(start, start + CHUNK_SAMPLES)
            observations, global_state = self._inputs(rollout, part)
            outputs, _ = self._networks.central_values(observations, global_state, None, None)
            value[part] = self._values(outputs.numpy(force=True))

    def _complete_recurrent(self, rollout: Rollout, states: torch.Tensor) -> None:
        rows, lanes = self._networks.policy_rows, rollout.lanes
        state = states[:, rows:].clone()
        for step in range(rollout.horizon + 1):
            rollout.extras["memory"][step, :, rows:] = state.numpy(force=True)
            observations, global_state = self._inputs(rollout, slice(step * lanes, (step + 1) * lanes))
            starts = self.batched(rollout.starts[step]).unsqueeze(0)
            outputs, after = self._networks.central_values(observations, global_state, starts, state)
            rollout.extras["value"][step] = self._values(outputs.numpy(force=True))
            if step < rollout.horizon and after is not None:
                state = after
        states[:, rows:] = state

    def _inputs(self, rollout: Rollout, part: slice) -> tuple[Any, Any]:
        """Return observations and global states of some samples of a rollout as tensors."""

        def chosen(array: np.ndarray) -> torch.Tensor:
            return self.batched(flat(array)[part])

        return map_tree(chosen, rollout.observations), map_tree(chosen, rollout.global_state)

    def batched(self, array: np.ndarray) -> torch.Tensor:
        """Return the array as a tensor on the networks' device."""
        return torch.from_numpy(array).to(self._networks.free.device)

    def arranged(self, observations: Any) -> Any:
        """See ``Path``."""
        return self._networks.arranged(observations)

    def recurrent_inputs(self, rollout: Rollout) -> RecurrentInputs | None:
        """See ``Path``."""
        if "memory" not in rollout.extras:
            return None
        arrays = rollout.valid, rollout.starts[:-1], rollout.extras["memory"][:-1]
        return RecurrentInputs(*(self.batched(flat(array)) for array in arrays))

    def next_state(self, rollout: Rollout, steps: slice, lanes: slice) -> torch.Tensor:
        """See ``Path``."""
        with torch.inference_mode():
            starts = self.batched(rollout.starts[steps, lanes])
            state = self.batched(rollout.extras["memory"][steps.start, lanes])

            def chosen(array: np.ndarray) -> torch.Tensor:
                return self.batched(flat(array[steps, lanes]))

            observations = map_tree(chosen, rollout.observations)
            global_state = map_tree(chosen, rollout.global_state) if self._central else None
            return self._networks(observations, starts, state, global_state).state

    def loss_gradients(
        self, batch: Batch, inputs: RecurrentInputs | None, rows: Any, chosen: Any, settings: PPOSettings
    ) -> None:
        """See ``Path``."""
        self._gradient.zero()
        if inputs is None:
            minibatch = batch.at(chosen)
            output = self._networks(minibatch.observations, global_state=minibatch.global_state)
        else:
            minibatch = batch._replace(observations=(), global_state=None).at(chosen)
            every = rows.flatten()
            observations = map_tree(lambda leaf: select_rows(leaf, every), batch.observations)
            global_state = (
                None if not self._central else map_tree(lambda leaf: select_rows(leaf, every), batch.global_state)
            )
            output = self._networks(observations, inputs.starts[rows], inputs.states[rows[0]], global_state)
            inside = inputs.valid[rows.flatten()]
            output = NetworkOutput(output.outputs[inside], output.values[inside], None)
        objective, losses = loss(
            output.outputs, output.values, self._networks.free, minibatch, self._distribution, settings
        )
        objective.backward()
        self._gradient.extras.copy_(losses)


class CompiledPath(Path):
    """The networks in compiled loops with closed-form gradients, for networks that ``serves`` accepts."""

    completes_log_probs = True

    def __init__(
        self, networks: PolicyAndValue, distribution: Distribution, gradient: FlatGradient, optimizer: FlatAdam
    ) -> None:
        """Create the path; ``optimizer`` holds the vector of all parameters."""
        super().__init__(networks, distribution, gradient)
        self._parameters = optimizer.parameters.numpy()
        self.gradient_moved()

    @staticmethod
    def serves(networks: PolicyAndValue) -> bool:
        """Return whether the networks can be computed: vector observations, feed-forward, on the CPU."""
        return isinstance(networks, ActorCritic) and CompiledActorCritic.serves(networks)

    def gradient_moved(self) -> None:
        """See ``Path``."""
        assert isinstance(self._networks, ActorCritic)
        self._compiled = CompiledActorCritic(self._networks, self._parameters, self._gradient.values.numpy())

    def act(
        self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None, *, with_values: bool
    ) -> Outputs:
        """See ``Path``; one pass over a rollout in ``complete`` is cheaper than values in each step."""
        if with_values and not self._central:
            outputs, values = self._compiled.forward(observations)
            return outputs, self._values(values), None
        return self._compiled.act(observations), None, None

    def values(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> np.ndarray:
        """See ``Path``."""
        return self._values(self._compiled.values(observations))

    def complete(self, rollout: Rollout, states: torch.Tensor) -> None:
        """See ``Path``."""
        global_state = None if rollout.global_state is None else flat(rollout.global_state)
        observations, choice = flat(rollout.observations), flat(rollout.extras["choice"])
        mask = None if rollout.action_mask is None else flat(rollout.action_mask)
        value, log_prob = flat(rollout.extras["value"]), flat(rollout.extras["log_prob"])
        parameters = self.distribution_parameters
        for start in range(0, len(choice), CHUNK_SAMPLES):
            part = slice(start, start + CHUNK_SAMPLES)
            seen = None if global_state is None else global_state[part]
            outputs, values = self._compiled.forward(observations[part], seen)
            value[part] = self._values(values)
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
        outputs, values = self._compiled.forward(minibatch.observations, minibatch.global_state)
        gradients = loss_gradients(
            outputs, values, self.distribution_parameters, minibatch, self._distribution, settings
        )
        # It overwrites the gradients of all layers, so that no zeroing is needed.
        self._compiled.backward(gradients.outputs, gradients.values)
        if networks.free.grad is not None:
            networks.free.grad.numpy()[...] = gradients.parameters
        with np.errstate(over="ignore"):  # a value that is not finite is reported later, with its cause
            self._gradient.extras.numpy()[...] = gradients.losses
