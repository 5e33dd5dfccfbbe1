"""Proximal policy optimisation (Schulman et al., 2017), over all workers of a player."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.trees import even_slices, map_tree, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.compiled.actor_critic import CompiledActorCritic
from arena.policies.compiled.adam import FlatAdam, l2_norm
from arena.policies.compiled.kernels import sum_of
from arena.policies.distributions import Categorical, distribution
from arena.policies.generator import generator_state, new_generator, set_generator_state
from arena.policies.inference import Inference, inference_of
from arena.policies.interface import Decision, Reducer
from arena.policies.networks import ActorCritic, NetworkOutput, copy_tensors, is_image, leaf_spaces
from arena.policies.ppo_loss import LOSSES, Batch, loss, loss_gradients
from arena.policies.returns import advantages
from arena.policies.settings import PPOSettings, settings_of_job
from arena.tensors.gradients import FlatGradient

KL = LOSSES.index("kl")
OLD_MEMORY = "memory.read.weight"  # what only networks with their memory behind the hidden layers had
NETWORK = "network."  # in front of the networks' names in a state dict
CHUNK_SAMPLES = 1024  # samples that are read at once: what the layers say of them stays in the caches


class RecurrentInputs(NamedTuple):
    """What a memory needs to read a rollout again: slots and lanes are one leading axis, slots first.

    Attributes:
      valid: ``[T * L]``, where there is a transition.
      starts: ``[T * L]``, where an episode starts.
      memory: ``[T * L, rows, width]``, with which the slot was read.
    """

    valid: torch.Tensor
    starts: torch.Tensor
    memory: torch.Tensor


def _joined(array: np.ndarray) -> np.ndarray:
    """Return a view ``[T * L, ...]`` of an array ``[T, L, ...]``."""
    return array.reshape(-1, *array.shape[2:])


def _refuse_old_memory(names: Iterable[str]) -> None:
    if OLD_MEMORY in names:
        raise ConfigError(
            "expected weights of a network with its memory in front of the hidden layers, found weights with one "
            "memory behind them, for policy and value: such networks learned badly and are no longer supported. "
            "Train again, without warm_start or in a run of another name; set shared: true if policy and value are to "
            "share one memory"
        )


class PPO:
    """The clipped surrogate objective with generalised advantage estimation.

    With a memory, learning starts each lane from the one it acted with in slot 0 and reads the whole rollout, so that
    the first epoch finds the very probabilities that acted; gradients do not reach further back. That memory was made
    by weights from before the last update: so each update ends by reading the rollout's last ``burn_in`` slots again
    with the new weights, from the memory before them, and acting and then learning go on from what comes out.

    What must be the same for the whole group is decided on reduced values: when to stop an update's epochs, and
    whether everything is still finite.
    """

    Settings = PPOSettings
    recomputes_outputs = True

    def __init__(
        self, spaces: EntitySpaces, settings: PPOSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. Initial weights are drawn from ``seed`` too: a group must share one worker's."""
        self.settings = self._own_settings = settings
        self._spaces = spaces
        self._images = any(is_image(leaf, settings.encoder) for leaf in leaf_spaces(spaces.observation))
        self.fit_to_group(lanes, entities=1)
        self.updates = 0
        self.progress = 0.0
        self.device = torch.device(device)
        self.distribution = distribution(spaces, settings.log_std_init)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = ActorCritic(
                spaces.observation, self.distribution.outputs, self.distribution.parameters, settings
            ).to(self.device)
        self.optimizer = FlatAdam(self.networks, settings.adam_epsilon)
        self.gradient = FlatGradient(self.networks.parameters(), extras=len(LOSSES))
        # Two generators: who acts and who learns may be two ranks, and draw what one rank would.
        self.random, self._shuffles = new_generator(seed), new_generator(derive_seed(seed, "minibatches"))
        self._fast = self._compiled_networks() if CompiledActorCritic.serves(self.networks) else None
        self._on_cpu = self.device.type == "cpu"
        self._free_view = self.networks.free.detach().cpu().numpy()  # on the CPU it follows the optimizer's steps
        self.extras: dict[str, tuple[tuple[int, ...], Any]] = {
            "choice": ((self.distribution.choices,), np.float32),
            "log_prob": ((), np.float32),
            "value": ((), np.float32),
        }
        self.recurrent = settings.is_recurrent
        self._memory = torch.zeros(lanes, *self.networks.state_shape, device=self.device)
        if self.recurrent:
            self.extras["memory"] = (self.networks.state_shape, np.float32)  # before the slot

    def fit_to_group(self, lanes: int, *, entities: int) -> None:
        """See ``Policy``: the horizon and the number of minibatches follow from the lanes of the group."""
        self._group_lanes = lanes, entities
        self._size = self.settings.update_size(lanes, entities, images=self._images)
        self.horizon = self._size.horizon
        if self.settings.burn_in is not None and self.settings.burn_in > self.horizon:
            raise ConfigError(
                f"expected burn_in of at most the horizon of {self.horizon} slots, found {self.settings.burn_in}"
            )

    def _compiled_networks(self) -> CompiledActorCritic:
        return CompiledActorCritic(self.networks, self.optimizer.parameters.numpy(), self.gradient.values.numpy())

    # Acting

    def act(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
        deterministic: bool = False,
        learning: bool = False,
    ) -> Decision:
        """See ``Policy``."""
        at_once = learning and not self.recomputes_outputs  # values and log probabilities are not left to ``complete``
        if self._fast is not None and at_once:
            outputs, values = self._fast.forward(observations)
            extras, state = {"value": values}, None
        elif self._fast is not None:
            outputs, extras, state = self._fast.act(observations), {}, None
        else:
            before = self._recall(observations, lanes)
            outputs, values, state = self._answer(observations, starts, before)
            extras = {"value": values} if before is None else {"value": values, "memory": before.numpy(force=True)}
        if not math.isfinite(sum_of(outputs)):
            raise FloatingPointError(self._not_finite_while_acting(observations, outputs))
        if state is not None and lanes is not None:
            self._memory[lanes] = state
        choice = self.distribution.sample(outputs, self._free, action_mask, self.random, deterministic)
        if not learning:
            return Decision(self.distribution.actions(choice), {})
        extras["choice"] = choice
        if self._fast is None or at_once:
            extras["log_prob"] = self.distribution.differentiate(outputs, self._free, choice, action_mask).log_prob
        return Decision(self.distribution.actions(choice), extras)

    def probabilities(self, observations: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every action ``[N, actions]``, at first observations where there is a memory.

        Raises:
          ConfigError: the action space is not Discrete.
        """
        if not isinstance(self.distribution, Categorical) or self.distribution.choices > 1:
            raise ConfigError("expected a Discrete action space, whose probabilities can be listed")
        if self._fast is not None:
            outputs = self._fast.act(observations)
        else:
            outputs = self._answer(observations, None, self._recall(observations, None)).outputs
        return self.distribution.probabilities(outputs, action_mask)

    def bootstrap(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
    ) -> np.ndarray:
        """See ``Policy``."""
        if self._fast is not None:
            return self._fast.values(observations)
        return self._answer(observations, starts, self._recall(observations, lanes)).values

    def _recall(self, observations: Any, lanes: slice | np.ndarray | None) -> torch.Tensor | None:
        """Return a copy of the lanes' memory, an empty one where none is kept."""
        if not self.recurrent:
            return None
        if lanes is None:
            return self._memory.new_zeros(len(tree_leaves(observations)[0]), *self._memory.shape[1:])
        return self._memory[lanes].clone()

    def _answer(self, observations: Any, starts: np.ndarray | None, state: torch.Tensor | None) -> NetworkOutput:
        """Ask the networks about N lanes; outputs and values are NumPy arrays."""
        with torch.inference_mode():
            fresh = None
            if state is not None:
                fresh = self._tensor(np.zeros(len(state), bool) if starts is None else starts).unsqueeze(0)
            found = self.networks(map_tree(self._tensor, observations), fresh, state)
            return NetworkOutput(found.outputs.numpy(force=True), found.values.numpy(force=True), found.state)

    @property
    def _free(self) -> np.ndarray:
        """The distribution's free numbers."""
        return self._free_view if self._on_cpu else self.networks.free.numpy(force=True)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _not_finite_while_acting(self, observations: Any, outputs: np.ndarray) -> str:
        leaves = [leaf for leaf in tree_leaves(observations) if np.issubdtype(leaf.dtype, np.floating)]
        tensor = "the networks' outputs" if all(np.isfinite(leaf).all() for leaf in leaves) else "the observations"
        odd = np.flatnonzero(~np.isfinite(outputs).all(-1)).tolist()
        return f"after update {self.updates}: an action is not finite, first {tensor} (lanes {odd} of this batch)"

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """See ``Policy``. Random actions belong to the policy that learns: the ratios know of them."""
        settings = settings_of_job("ppo", self._own_settings, forward, data, ("eps",))
        if not isinstance(self.distribution, Categorical):
            if forward.get("eps"):
                raise ConfigError("ppo: exploration by random actions needs Discrete or MultiDiscrete actions")
        else:
            self.distribution.exploration = float(forward.get("eps", 0.0))
        self.settings = settings
        self._size = settings.update_size(*self._group_lanes, images=self._images)

    # Learning

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """See ``Policy``."""
        settings = self.settings.after(self.progress)
        if self.gradient.join(group) and self._fast is not None:
            self._fast = self._compiled_networks()  # which write their gradients where they are now
        batch, metrics = self._prepare(rollout, group)
        past = self._recurrent_inputs(rollout)
        history = []
        for rows, chosen in self._minibatches(rollout.valid) if metrics["samples"] else ():
            if len(chosen):
                self._differentiate(batch, past, rows, chosen, settings)
            else:  # this worker has nothing to say, but takes part in the average
                self.gradient.zero()
            if not self.gradient.average(group, len(chosen)):
                continue
            norm = l2_norm(self.gradient.values)
            losses = self.gradient.extras.tolist()
            self._check_finite(norm, losses)
            history.append((*losses, norm))
            if settings.target_kl is not None and losses[KL] > 1.5 * settings.target_kl:
                break
            longest = settings.max_grad_norm
            scale = longest / norm if longest is not None and norm > longest else 1.0
            self.optimizer.step(self.gradient.values, settings.learning_rate, scale)
        self.updates += 1
        if (
            self.recurrent and settings.burn_in != 0 and self.recomputes_outputs
        ):  # else its lanes are not those that act
            self._burn_in(rollout)
        if history:
            metrics.update(zip((*LOSSES, "grad_norm"), np.mean(history, 0).tolist(), strict=True))
        return {**metrics, "learning_rate": settings.learning_rate}

    def _differentiate(
        self, batch: Batch, past: RecurrentInputs | None, rows: Any, chosen: Any, settings: PPOSettings
    ) -> None:
        """Write the gradient of the loss over the transitions of ``chosen``, and ``LOSSES`` behind it."""
        free = self.networks.free
        if self._fast is not None:
            few = batch.at(chosen)
            outputs, values = self._fast.forward(few.observations)
            found = loss_gradients(outputs, values, self._free, few, self.distribution, settings)
            self._fast.backward(found.outputs, found.values)  # writes all but what follows; nothing was cleared
            if free.grad is not None:
                free.grad.numpy()[...] = found.parameters
            with np.errstate(over="ignore"):  # what is not finite is reported with its cause
                self.gradient.extras.numpy()[...] = found.losses
            return
        self.gradient.zero()
        if past is None:
            few = batch.at(chosen)
            answer = self.networks(few.observations)
        else:
            # rows are all slots of some lanes, [T, lanes]; chosen are the transitions among them.
            few = batch._replace(observations=()).at(chosen)
            observations = map_tree(lambda leaf: leaf[rows.flatten()], batch.observations)
            answer = self.networks(observations, past.starts[rows], past.memory[rows[0]])
            inside = past.valid[rows.flatten()]
            answer = NetworkOutput(answer.outputs[inside], answer.values[inside], None)
        objective, losses = loss(answer.outputs, answer.values, free, few, self.distribution, settings)
        objective.backward()
        self.gradient.extras.copy_(losses)

    def complete(self, rollout: Rollout) -> None:
        """See ``Policy``: values and log probabilities of all slots at once.

        One pass over a rollout is cheaper than its slots one by one.
        """
        if self._fast is None or not self.recomputes_outputs:
            return
        observations, choice = _joined(rollout.observations), _joined(rollout.extras["choice"])
        mask = None if rollout.action_mask is None else _joined(rollout.action_mask)
        value, log_prob = _joined(rollout.extras["value"]), _joined(rollout.extras["log_prob"])
        for start in range(0, len(choice), CHUNK_SAMPLES):
            part = slice(start, start + CHUNK_SAMPLES)
            outputs, value[part] = self._fast.forward(observations[part])
            allowed = None if mask is None else mask[part]
            log_prob[part] = self.distribution.differentiate(outputs, self._free, choice[part], allowed).log_prob

    def _prepare(self, rollout: Rollout, group: Reducer) -> tuple[Batch, dict[str, float]]:
        """Estimate advantages, normalise them over the group, and say how well the values explained the returns."""
        values = rollout.extras["value"]
        advantage = advantages(
            rollout.rewards,
            values,
            rollout.terminated,
            rollout.truncated,
            rollout.valid,
            rollout.next_slot,
            gamma=self.settings.gamma,
            gae_lambda=self.settings.gae_lambda,
        )
        target = advantage + values[:-1]
        a, r = advantage[rollout.valid].astype(np.float64), target[rollout.valid].astype(np.float64)
        moments = np.array([len(a), a.sum(), a @ a, r.sum(), r @ r])
        group.sum_in_place(moments)
        if not np.isfinite(moments).all():
            raise FloatingPointError(f"update {self.updates + 1}: rewards or values are not finite; advantages are nan")
        count, metrics = moments[0], {"samples": float(moments[0]), "explained_variance": 0.0}
        if count:
            mean, target_mean = moments[1] / count, moments[3] / count
            variance = max(moments[2] / count - mean**2, 0.0)
            target_variance = moments[4] / count - target_mean**2
            # The advantage is the value's error.
            if target_variance > 1e-12:
                metrics["explained_variance"] = float(1 - variance / target_variance)
            if self.settings.normalize_advantages:
                advantage = ((advantage - mean) / (math.sqrt(variance) + 1e-8)).astype(np.float32)
        return self._batch(rollout, advantage, target), metrics

    def _batch(self, rollout: Rollout, advantage: np.ndarray, target: np.ndarray) -> Batch:
        def rows(array: np.ndarray) -> Any:
            found = _joined(array[: rollout.horizon])
            return found if self._fast is not None else self._tensor(found)

        extras = rollout.extras
        return Batch(
            observations=map_tree(rows, rollout.observations),
            mask=None if rollout.action_mask is None else rows(rollout.action_mask),
            choice=rows(extras["choice"]),
            log_prob=rows(extras["log_prob"]),
            value=rows(extras["value"]),
            advantage=rows(advantage),
            target=rows(target),
        )

    def _recurrent_inputs(self, rollout: Rollout) -> RecurrentInputs | None:
        """Return what a memory needs to read a rollout again."""
        if not self.recurrent:
            return None
        arrays = rollout.valid, rollout.starts[:-1], rollout.extras["memory"][:-1]
        return RecurrentInputs(*(self._tensor(_joined(array)) for array in arrays))

    def _minibatches(self, valid: np.ndarray) -> Iterator[tuple[Any, Any]]:
        """Yield every epoch's minibatches: rows to read and, among them, the transitions to learn from.

        Both are indices into the flattened ``[T * L]``. How many there are depends on the settings alone; a worker with
        few transitions gets empty ones. With memory, a minibatch is some lanes at full length, ``[T, lanes]``.
        """
        horizon, lanes = valid.shape
        everything = np.flatnonzero(valid)
        grid = np.arange(horizon * lanes).reshape(horizon, lanes)
        parts = even_slices(lanes if self.recurrent else len(everything), self._size.minibatches)
        for _ in range(self._size.epochs):
            order = self._shuffles.permutation(lanes if self.recurrent else everything)
            for part in map(order.__getitem__, parts):
                rows = grid[:, part] if self.recurrent else part
                chosen = rows[valid[:, part]] if self.recurrent else part
                yield (rows, chosen) if self._fast is not None else (self._tensor(rows), self._tensor(chosen))

    def _burn_in(self, rollout: Rollout) -> None:
        """Bring the memory of all lanes up to date with the new weights; see the class."""
        slots = self.settings.burn_in
        first = 0 if slots is None else rollout.horizon - slots
        for lanes in even_slices(rollout.lanes, self._size.minibatches):  # of images, all are too many at once
            if lanes.start < lanes.stop:
                self._read_again(rollout, slice(first, rollout.horizon), lanes)

    def _read_again(self, rollout: Rollout, slots: slice, lanes: slice) -> None:
        with torch.inference_mode():
            read = map_tree(lambda array: self._tensor(_joined(array[slots, lanes])), rollout.observations)
            starts = self._tensor(rollout.starts[slots, lanes])
            before = self._tensor(rollout.extras["memory"][slots.start, lanes])
            self._memory[lanes] = self.networks(read, starts, before).state

    def _check_finite(self, norm: float, losses: list[float]) -> None:
        """Raise on all workers together: what is looked at was reduced."""
        if math.isfinite(norm + sum(losses)):
            return
        culprits = [name for name, loss in zip(LOSSES, losses, strict=True) if not math.isfinite(loss)]
        for name, parameter in self.networks.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                culprits.append(f"the gradient of {name}")
        found = culprits[0] if culprits else "the length of the gradient"
        raise FloatingPointError(f"update {self.updates + 1}: {found} is not finite")

    def set_progress(self, done: float) -> None:
        """See ``Policy``."""
        self.progress = min(max(done, 0.0), 1.0)

    # State

    def weights(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: policy and value networks."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.networks.state_dict().items()}

    def inference(self) -> Inference:
        """See ``Policy``."""
        return inference_of(self._spaces, self.networks)

    def load_weights(self, weights: dict[str, Any]) -> None:
        """See ``Policy``.

        Raises:
          ConfigError: names or shapes are not those of these networks.
        """
        _refuse_old_memory(weights)
        copy_tensors(self.networks.state_dict(), weights)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """See ``Policy``."""
        return {
            **{NETWORK + name: tensor for name, tensor in self.weights().items()},
            "adam.first": self.optimizer.first.cpu().clone(),
            "adam.second": self.optimizer.second.cpu().clone(),
            "adam.steps": torch.tensor(self.optimizer.steps),
            "updates": torch.tensor(self.updates),
            "progress": torch.tensor(self.progress, dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Policy``.

        Raises:
          ConfigError: names or shapes are not those of this policy.
        """
        numbers = {name: torch.zeros((), dtype=torch.float64) for name in ("adam.steps", "updates", "progress")}
        networks = {NETWORK + name: tensor for name, tensor in self.networks.state_dict().items()}
        _refuse_old_memory(name.removeprefix(NETWORK) for name in state)
        moments = {"adam.first": self.optimizer.first, "adam.second": self.optimizer.second}
        copy_tensors({**networks, **moments, **numbers}, state)
        self.optimizer.steps = int(numbers["adam.steps"])
        self.updates = int(numbers["updates"])
        self.progress = float(numbers["progress"])

    def worker_state(self) -> dict[str, np.ndarray]:
        """See ``Policy``."""
        state = {"generator": generator_state(self.random), "shuffles": generator_state(self._shuffles)}
        if self.recurrent:
            state["memory"] = self._memory.numpy(force=True).copy()
        return state

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        set_generator_state(self.random, state["generator"])
        if "shuffles" in state:  # a checkpoint of an earlier version has one generator for both
            set_generator_state(self._shuffles, state["shuffles"])
        if self.recurrent:
            copy_tensors({"memory": self._memory}, {"memory": state["memory"]})
