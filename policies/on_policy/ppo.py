"""Proximal policy optimisation (Schulman et al., 2017), over all workers of a player."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed, generator_state, new_generator, set_generator_state
from arena.common.trees import even_slices, map_tree, tree_leaves
from arena.envs.interface import EntitySpaces
from arena.experience.rollout import Rollout
from arena.policies.compiled.adam import FlatAdam, l2_norm
from arena.policies.compiled.kernels import sum_of
from arena.policies.copies import copy_tensors
from arena.policies.distributions.discrete import Categorical
from arena.policies.distributions.of_spaces import distribution
from arena.policies.encoders.composite import Encoder
from arena.policies.encoders.parts import parts_of
from arena.policies.inference import Inference, inference_of
from arena.policies.interface import Decision, Reducer
from arena.policies.networks import acting_tensors
from arena.policies.not_finite import not_finite_while_acting
from arena.policies.on_policy.loss import LOSSES, Batch
from arena.policies.on_policy.magnet import Magnet
from arena.policies.on_policy.paths import CompiledPath, Path, TorchPath, flat
from arena.policies.on_policy.reward_scale import RewardScale
from arena.policies.on_policy.settings import PPOSettings
from arena.policies.on_policy.targets import targets_of
from arena.policies.own_network import networks_of
from arena.policies.settings.base import settings_of_job
from arena.tensors.gradients import FlatGradient

KL = LOSSES.index("kl")
OLD_RECURRENT = "memory.read.weight"  # present only in networks with the recurrent layer behind the hidden layers
NETWORK = "network."  # prefix of the networks' names in a state dict


def _check_names(names: Iterable[str]) -> None:
    if OLD_RECURRENT in names:
        raise ConfigError(
            "expected weights of a network with its memory in front of the hidden layers, found weights with one "
            "memory behind them, for policy and value: such networks learned badly and are no longer supported. "
            "Train again, without warm_start or in a run of another name; set shared: true if policy and value are to "
            "share one memory"
        )


class PPO:
    """The clipped surrogate objective with generalised advantage estimation.

    A recurrent policy learns from whole rollouts, starting each lane from the recurrent state that it acted with in
    time step 0, so that the first epoch reproduces the probabilities that acted; gradients do not reach further back.
    Since an update makes the states of the lanes stale, it ends with a burn-in: the new weights read the rollout's last
    ``burn_in`` time steps again, from the state before them, and acting continues from the result.

    Decisions that must be equal in the whole group depend on reduced values: when to stop an update's epochs, and
    whether everything is still finite.
    """

    Settings = PPOSettings
    recomputes_outputs = True
    changing_players = False

    def __init__(
        self, spaces: EntitySpaces, settings: PPOSettings, *, lanes: int, seed: int, device: str = "cpu"
    ) -> None:
        """See ``Policy``. ``seed`` also seeds the initial weights: a group must share one worker's."""
        self.settings = self._own_settings = settings
        self._spaces = spaces
        self.updates = 0
        self.progress = 0.0
        self.device = torch.device(device)
        self.distribution = distribution(spaces, settings.log_std_init)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = networks_of(spaces, self.distribution, settings).to(self.device)
        self.recurrent = self.networks.is_recurrent
        images = any(part.has_image for part in parts_of(spaces.observation, settings))
        self._is_long = images or self.recurrent
        self.fit_to_group(lanes, entities=1)
        has_magnet = settings.magnet_coefficient > 0
        self._magnet = Magnet(self.networks, settings.magnet_rate) if has_magnet else None
        self.optimizer = FlatAdam(self.networks, settings.adam_epsilon)
        self.gradient = FlatGradient(self.networks.parameters(), extras=len(LOSSES))
        self._reward_scale = RewardScale(settings.reward_clip) if settings.normalize_rewards else None
        # Two generators: a rank that acts and one that learns draw the numbers that a single rank would.
        self.random, self._shuffles = new_generator(seed), new_generator(derive_seed(seed, "minibatches"))
        self._path: Path = (
            CompiledPath(self.networks, self.distribution, self.gradient, self.optimizer)
            if CompiledPath.serves(self.networks)
            else TorchPath(self.networks, self.distribution, self.gradient)
        )
        self.extras: dict[str, tuple[tuple[int, ...], Any]] = {
            "choice": ((self.distribution.choices,), np.float32),
            "log_prob": ((), np.float32),
            "value": ((), np.float32),
        }
        self._states = torch.zeros(lanes, *self.networks.state_shape, device=self.device)
        if self.recurrent:
            self.extras["memory"] = (self.networks.state_shape, np.float32)  # state before the time step

    def fit_to_group(self, lanes: int, *, entities: int) -> None:
        """See ``Policy``: the horizon and the number of minibatches follow from the lanes of the group."""
        self._group_lanes = lanes, entities
        self.settings = self._own_settings.among(changing_players=self.changing_players)
        self._size = self.settings.update_size(lanes, entities, images=self._is_long)
        self.horizon = self._size.horizon
        if self.settings.burn_in is not None and self.settings.burn_in > self.horizon:
            raise ConfigError(
                f"expected burn_in of at most the horizon of {self.horizon} slots, found {self.settings.burn_in}"
            )

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
        # Feed-forward networks save the call: this runs in every step.
        state = self._state_of(observations, lanes) if self.recurrent else None
        outputs, values, next_state = self._path.act(
            observations, starts, state, with_values=learning and not self.recomputes_outputs
        )
        if not math.isfinite(sum_of(outputs)):
            raise FloatingPointError(not_finite_while_acting(self.updates, observations, outputs))
        if next_state is not None and lanes is not None:
            self._states[lanes] = next_state
        parameters = self._path.distribution_parameters
        choice = self.distribution.sample(outputs, parameters, action_mask, self.random, deterministic)
        if not learning:
            return Decision(self.distribution.actions(choice), {})
        extras = {"choice": choice}
        if values is not None:
            extras["value"] = values
        if values is not None or not self._path.completes_log_probs:
            extras["log_prob"] = self.distribution.differentiate(outputs, parameters, choice, action_mask).log_prob
        if state is not None:
            extras["memory"] = state.numpy(force=True)
        return Decision(self.distribution.actions(choice), extras)

    def probabilities(self, observations: Any, action_mask: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of every action ``[N, actions]``; recurrent policies take first observations.

        Raises:
          ConfigError: the action space is not Discrete.
        """
        if not isinstance(self.distribution, Categorical) or self.distribution.choices > 1:
            raise ConfigError("expected a Discrete action space, so that probabilities can be listed")
        outputs, _, _ = self._path.act(observations, None, self._state_of(observations, None), with_values=False)
        return self.distribution.probabilities(outputs, action_mask)

    def bootstrap(
        self,
        observations: Any,
        *,
        action_mask: np.ndarray | None = None,
        starts: np.ndarray | None = None,
        lanes: slice | np.ndarray | None = None,
    ) -> np.ndarray:
        """See ``Policy``; zeros with a central critic: ``complete`` computes its values."""
        if self.networks.has_central_critic:
            return np.zeros(len(tree_leaves(observations)[0]), np.float32)
        return self._path.values(observations, starts, self._state_of(observations, lanes))

    def _state_of(self, observations: Any, lanes: slice | np.ndarray | None) -> torch.Tensor | None:
        """Return a copy of the lanes' recurrent state; zeros without lanes, None for feed-forward networks."""
        if not self.recurrent:
            return None
        if lanes is None:
            return self._states.new_zeros(len(tree_leaves(observations)[0]), *self._states.shape[1:])
        return self._states[lanes].clone()

    def configure(self, forward: dict[str, Any], data: dict[str, Any]) -> None:
        """See ``Policy``. Random actions are part of the policy that learns: its probabilities include them."""
        settings = settings_of_job("ppo", self._own_settings, forward, data, ("eps",))
        if not isinstance(self.distribution, Categorical):
            if forward.get("eps"):
                raise ConfigError("ppo: exploration by random actions needs Discrete or MultiDiscrete actions")
        else:
            self.distribution.exploration = float(forward.get("eps", 0.0))
        self.settings = settings.among(changing_players=self.changing_players)
        self._size = self.settings.update_size(*self._group_lanes, images=self._is_long)

    # Learning

    def learn(self, rollout: Rollout, group: Reducer) -> dict[str, float]:
        """See ``Policy``."""
        settings = self.settings.after(self.progress)
        if self.gradient.join(group):
            self._path.gradient_moved()
        # Before the first rollout there is no scale of observations: it is measured, and not learned from.
        rewards = self._rewards(rollout, group)
        is_unmeasured = self.networks.is_unmeasured
        metrics = {"samples": 0.0} if is_unmeasured else self._optimize(rollout, rewards, group, settings)
        self._measure(rollout, group)
        if self._magnet is not None:
            self._magnet.follow()
        self.updates += 1
        # With a learner apart, other ranks act, so this rank's recurrent states are not theirs.
        if self.recurrent and settings.burn_in != 0 and self.recomputes_outputs:
            self._burn_in(rollout)
        return {**metrics, "learning_rate": settings.learning_rate}

    def _rewards(self, rollout: Rollout, group: Reducer) -> np.ndarray:
        """Return the rewards ``[T, L]`` to learn from."""
        if self._reward_scale is None:
            return rollout.rewards
        return self._reward_scale.scaled(rollout, self.settings.gamma, group)

    def _optimize(
        self, rollout: Rollout, rewards: np.ndarray, group: Reducer, settings: PPOSettings
    ) -> dict[str, float]:
        """Take the gradient steps of an update, and return metrics."""
        targets = targets_of(rollout, rewards, group, self.networks, self.settings, update=self.updates + 1)
        batch, metrics = self._batch(rollout, targets.advantage, targets.target), dict(targets.metrics)
        inputs = self._path.recurrent_inputs(rollout)
        history = []
        for rows, chosen in self._minibatches(rollout.valid) if metrics["samples"] else ():
            if len(chosen):
                self._path.loss_gradients(batch, inputs, rows, chosen, settings)
            else:  # this worker has no transitions, but takes part in the average
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
        if history:
            metrics.update(zip((*LOSSES, "grad_norm"), np.mean(history, 0).tolist(), strict=True))
            if isinstance(self.distribution, Categorical) and self.distribution.uniform_entropy > 0:
                metrics["entropy_share"] = metrics["entropy"] / self.distribution.uniform_entropy
        return metrics

    def _measure(self, rollout: Rollout, group: Reducer) -> None:
        """Include the rollout's observations in running normalisations; all workers of the group make this call."""
        if not self.networks.is_normalizing:
            return
        columns = tree_leaves(rollout.observations)
        if self.networks.has_central_critic:
            columns = [*columns, *tree_leaves(rollout.global_state)]
        self.networks.measuring_encoder.measure([leaf[:-1] for leaf in columns], rollout.valid, group)

    def complete(self, rollout: Rollout) -> None:
        """See ``Policy``: values and log probabilities of all time steps in one pass."""
        if self.recomputes_outputs:
            self._path.complete(rollout, self._states)

    def _batch(self, rollout: Rollout, advantage: np.ndarray, target: np.ndarray) -> Batch:
        def rows(array: np.ndarray) -> Any:
            return self._path.batched(flat(array[: rollout.horizon]))

        extras, value, scale = rollout.extras, rollout.extras["value"], self.networks.value_scale
        if scale is not None:
            value, target = scale.outputs(value), scale.outputs(target)
        return Batch(
            observations=self._path.arranged(map_tree(rows, rollout.observations)),
            mask=None if rollout.action_mask is None else rows(rollout.action_mask),
            choice=rows(extras["choice"]),
            log_prob=rows(extras["log_prob"]),
            value=rows(value),
            advantage=rows(advantage),
            target=rows(target),
            global_state=map_tree(rows, rollout.global_state) if self.networks.has_central_critic else None,
            magnet=None if self._magnet is None else self._path.batched(self._magnet.outputs(rollout)),
        )

    def _minibatches(self, valid: np.ndarray) -> Iterator[tuple[Any, Any]]:
        """Yield every epoch's minibatches: rows to evaluate and, among them, the transitions to learn from.

        Both are indices into the flattened ``[T * L]``. Their number depends on the settings alone; a worker with few
        transitions gets empty ones. A minibatch of a recurrent policy has all time steps of some lanes, ``[T, lanes]``.
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
                yield self._path.batched(rows), self._path.batched(chosen)

    def _burn_in(self, rollout: Rollout) -> None:
        """Recompute the recurrent states of all lanes with the new weights; see the class."""
        length = self.settings.burn_in
        steps = slice(0 if length is None else rollout.horizon - length, rollout.horizon)
        for lanes in even_slices(rollout.lanes, self._size.minibatches):  # all lanes of images would need much memory
            if lanes.start < lanes.stop:
                self._states[lanes] = self._path.next_state(rollout, steps, lanes)

    def _check_finite(self, norm: float, losses: list[float]) -> None:
        """Raise on all workers together: the checked values were reduced."""
        if math.isfinite(norm + sum(losses)):
            return
        culprits = [name for name, loss in zip(LOSSES, losses, strict=True) if not math.isfinite(loss)]
        for name, parameter in self.networks.named_parameters():
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
                culprits.append(f"the gradient of {name}")
        culprit = culprits[0] if culprits else "the length of the gradient"
        raise FloatingPointError(f"update {self.updates + 1}: {culprit} is not finite")

    def set_progress(self, done: float) -> None:
        """See ``Policy``."""
        self.progress = min(max(done, 0.0), 1.0)

    # State

    def encoders(self) -> list[Encoder]:
        """See ``Policy``."""
        return [module for module in self.networks.modules() if isinstance(module, Encoder)]

    def weights(self) -> dict[str, torch.Tensor]:
        """See ``Policy``: policy and value networks."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.networks.state_dict().items()}

    def inference(self) -> Inference:
        """See ``Policy``."""
        return inference_of(self._spaces, self.networks)

    def load_weights(self, weights: dict[str, Any]) -> None:
        """See ``Policy``; without a global state, those of a central critic are ignored.

        Raises:
          ConfigError: names or shapes differ from those of these networks.
        """
        _check_names(weights)
        tensors = self.networks.state_dict()
        if self.settings.reads_global_state and not self.networks.has_central_critic:
            tensors, weights = acting_tensors(tensors), acting_tensors(weights)
        copy_tensors(tensors, weights)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """See ``Policy``."""
        return {
            **{NETWORK + name: tensor for name, tensor in self.weights().items()},
            "adam.first": self.optimizer.first.cpu().clone(),
            "adam.second": self.optimizer.second.cpu().clone(),
            "adam.steps": torch.tensor(self.optimizer.steps),
            "updates": torch.tensor(self.updates),
            "progress": torch.tensor(self.progress, dtype=torch.float64),
            **({} if self._reward_scale is None else self._reward_scale.state_dict()),
            **{name: tensor.cpu().clone() for name, tensor in self._magnet_state().items()},
        }

    def _magnet_state(self) -> dict[str, torch.Tensor]:
        return {} if self._magnet is None else self._magnet.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Policy``.

        Raises:
          ConfigError: names or shapes differ from those of this policy.
        """
        numbers = {name: torch.zeros((), dtype=torch.float64) for name in ("adam.steps", "updates", "progress")}
        networks = {NETWORK + name: tensor for name, tensor in self.networks.state_dict().items()}
        _check_names(name.removeprefix(NETWORK) for name in state)
        moments = {"adam.first": self.optimizer.first, "adam.second": self.optimizer.second}
        rewards = {} if self._reward_scale is None else self._reward_scale.state_dict()
        copy_tensors({**networks, **moments, **numbers, **rewards, **self._magnet_state()}, state)
        if self._reward_scale is not None:
            self._reward_scale.load_state_dict(rewards)
        self.optimizer.steps = int(numbers["adam.steps"])
        self.updates = int(numbers["updates"])
        self.progress = float(numbers["progress"])

    def worker_state(self) -> dict[str, np.ndarray]:
        """See ``Policy``."""
        state = {"generator": generator_state(self.random), "shuffles": generator_state(self._shuffles)}
        if self.recurrent:
            state["memory"] = self._states.numpy(force=True).copy()
        if self._reward_scale is not None:
            state["reward_sums"] = self._reward_scale.sums.copy()
        return state

    def load_worker_state(self, state: dict[str, Any]) -> None:
        """See ``Policy``."""
        set_generator_state(self.random, state["generator"])
        if "shuffles" in state:  # a checkpoint of an earlier version has one generator for both
            set_generator_state(self._shuffles, state["shuffles"])
        if self.recurrent:
            copy_tensors({"memory": self._states}, {"memory": state["memory"]})
        if self._reward_scale is not None:
            self._reward_scale.sums = np.array(state["reward_sums"])
