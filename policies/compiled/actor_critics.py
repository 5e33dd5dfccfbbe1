"""The arithmetic of SAC and TD3 on small perceptrons, without autograd."""

import numpy as np

from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.compiled.layers import tanh
from arena.policies.compiled.perceptrons import CompiledPerceptrons
from arena.tensors.numba_jit import compiled

_F = np.float32
LEAST, MOST = _F(-20), _F(2)  # log standard deviations, as in SAC's own code
LOG_2 = _F(np.log(2))
LOG_SQRT_2PI = _F(0.5 * np.log(2 * np.pi))


class CompiledActorCritics:
    """Actor, critics and their targets, compiled; the part that SAC and TD3 share."""

    def __init__(
        self,
        acting: CompiledPerceptrons,
        actor: CompiledPerceptrons,
        target_actor: CompiledPerceptrons,
        critics: CompiledPerceptrons,
        targets: CompiledPerceptrons,
    ) -> None:
        """Create it; ``acting`` and ``actor`` are the same network with separate buffers.

        SAC has no target actor: its ``target_actor`` is the actor with another set of buffers.
        """
        self._acting, self.actor, self.target_actor = acting, actor, target_actor
        self.critics, self.targets = critics, targets

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the actor's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        self._acting.read(observations)
        return self._acting.forward()[0]

    def prepare(self, rows: np.ndarray) -> None:
        """Copy the observations of rows ``[B]`` into the networks' input buffers."""
        following = rows[FOLLOWING + "0"]
        self.target_actor.read(following)
        self.targets.read(following)
        self.critics.read(rows[OBSERVATION + "0"])[:, self.actor.inputs :] = rows["choice"]

    def look_at_observations(self, rows: np.ndarray) -> np.ndarray:
        """Return the actor's outputs for the observations before the action."""
        self.actor.read(rows[OBSERVATION + "0"])
        return self.actor.forward()[0]


class CompiledSAC(CompiledActorCritics):
    """The gradients of SAC's losses; see ``arena.policies.off_policy.sac``."""

    def gradient(
        self,
        rows: np.ndarray,
        noise: np.ndarray,
        alpha: float,
        by_critics: np.ndarray,
        by_actor: np.ndarray | None,
        losses: np.ndarray,
    ) -> None:
        """Write the gradients over rows ``[B]``; ``losses`` in the order of ``SAC.LOSSES``.

        Args:
          rows: see ``Transitions``.
          noise: standard normal ``[2, B, d]``.
          alpha: entropy coefficient.
          by_critics: ``[P]``, gradient of the critics.
          by_actor: ``[P]``, gradient of the actor; None in a step without an actor update.
          losses: ``[5]``.
        """
        self.prepare(rows)
        count, width = len(rows), self.actor.inputs
        log_prob = np.empty(count, np.float32)
        squash(self.target_actor.forward()[0], noise[0], self.targets.room(count)[:, width:], log_prob)
        first, second = self.targets.forward()
        values_1, values_2 = self.critics.forward()
        by_values_1, by_values_2 = self.critics.output_gradients
        losses[4] = alpha
        sac_critic_gradients(
            rows["reward"],
            rows["discount"],
            first,
            second,
            log_prob,
            alpha,
            values_1,
            values_2,
            by_values_1,
            by_values_2,
            losses,
        )
        self.critics.backward(by_critics)
        losses[1] = losses[3] = 0
        if by_actor is None:
            return
        outputs = self.look_at_observations(rows)
        action = self.critics.room(count)[:, width:]
        squash(outputs, noise[1], action, log_prob)
        values_1, values_2 = self.critics.forward()
        sac_actor_gradients(values_1, values_2, log_prob, alpha, *self.critics.output_gradients, losses)
        by_action = self.critics.input_gradients()[:, width:]
        squash_backward(outputs, noise[1], action, by_action, alpha / count, self.actor.output_gradients[0])
        self.actor.backward(by_actor)


class CompiledTD3(CompiledActorCritics):
    """The gradients of TD3's losses; see ``arena.policies.off_policy.td3``."""

    def gradient(
        self,
        rows: np.ndarray,
        noise: np.ndarray,
        by_critics: np.ndarray,
        by_actor: np.ndarray | None,
        losses: np.ndarray,
    ) -> None:
        """Write the gradients over rows ``[B]``; ``losses`` in the order of ``TD3.LOSSES``.

        Args:
          rows: see ``Transitions``.
          noise: noise of the target's actions, ``[B, d]``.
          by_critics: ``[P]``, gradient of the critics.
          by_actor: ``[P]``, gradient of the actor; None in a step without an actor update.
          losses: ``[3]``.
        """
        self.prepare(rows)
        count, width = len(rows), self.actor.inputs
        bounded(self.target_actor.forward()[0], noise, self.targets.room(count)[:, width:])
        values = self.targets.forward()
        all_values = self.critics.forward()
        gradients = self.critics.output_gradients
        losses[:] = 0
        for number in range(len(all_values)):
            td3_critic_gradients(
                rows["reward"], rows["discount"], values[0], values[-1], all_values[number], gradients[number], losses,
                1 / len(all_values),
            )  # fmt: skip
        self.critics.backward(by_critics)
        if by_actor is None:
            return
        outputs = self.look_at_observations(rows)
        action = self.critics.room(count)[:, width:]
        bounded(outputs, np.zeros_like(noise), action)
        all_values = self.critics.forward()
        losses[1] = -all_values[0].mean()
        gradients[0][:] = -1 / count
        if len(gradients) > 1:
            gradients[1][:] = 0
        by_action = self.critics.input_gradients()[:, width:]
        self.actor.output_gradients[0][...] = by_action * (1 - action * action)
        self.actor.backward(by_actor)


@compiled("void(float32[:, ::1], float32[:, ::1], float32[:, :], float32[::1])")
def squash(outputs: np.ndarray, noise: np.ndarray, action: np.ndarray, log_prob: np.ndarray) -> None:
    """Write actions ``[N, d]`` and their log probabilities ``[N]``; see ``arena.policies.off_policy.sac.squash``."""
    d = noise.shape[1]
    for i in range(len(outputs)):
        total = _F(0)
        for j in range(d):
            log_std = min(max(outputs[i, d + j], LEAST), MOST)
            e = noise[i, j]
            u = outputs[i, j] + np.exp(log_std) * e
            action[i, j] = tanh(u)
            # softplus(-2 u), without overflow
            soft = max(_F(-2) * u, _F(0)) + np.log1p(np.exp(-abs(_F(2) * u)))
            total += _F(-0.5) * e * e - log_std - LOG_SQRT_2PI - _F(2) * (LOG_2 - u - soft)
        log_prob[i] = total


@compiled("void(float32[:, ::1], float32[:, ::1], float32[:, :], float32[:, :], float32, float32[:, ::1])")
def squash_backward(
    outputs: np.ndarray,
    noise: np.ndarray,
    action: np.ndarray,
    by_action: np.ndarray,
    by_log_prob: float,
    by_outputs: np.ndarray,
) -> None:
    """Write the gradients with respect to ``outputs`` ``[N, 2 d]``, given those of actions and log probabilities."""
    d = noise.shape[1]
    for i in range(len(outputs)):
        for j in range(d):
            a, raw = action[i, j], outputs[i, d + j]
            by_u = by_action[i, j] * (_F(1) - a * a) + by_log_prob * _F(2) * a
            by_outputs[i, j] = by_u
            inside = LEAST <= raw <= MOST
            by_outputs[i, d + j] = by_u * np.exp(raw) * noise[i, j] - by_log_prob if inside else _F(0)


@compiled("void(float32[:, ::1], float32[:, ::1], float32[:, :])")
def bounded(outputs: np.ndarray, noise: np.ndarray, action: np.ndarray) -> None:
    """Write tanh of the outputs plus noise, clipped to [-1, 1]; all ``[N, d]``."""
    for i in range(len(outputs)):
        for j in range(outputs.shape[1]):
            action[i, j] = min(max(tanh(outputs[i, j]) + noise[i, j], _F(-1)), _F(1))


@compiled(
    "void(float32[:], float32[:], float32[:, ::1], float32[:, ::1], float32[::1], float32, float32[:, ::1],"
    " float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1])"
)
def sac_critic_gradients(
    reward: np.ndarray,
    discount: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    log_prob: np.ndarray,
    alpha: float,
    values_1: np.ndarray,
    values_2: np.ndarray,
    by_values_1: np.ndarray,
    by_values_2: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Write the gradients of SAC's critic loss with respect to the values ``values_1`` and ``values_2`` ``[B, 1]``.

    ``first`` and ``second`` are the targets' values of the next action, ``log_prob`` its log probability. The loss is
    added to ``losses[0]``, the mean value to ``losses[2]``.
    """
    count = len(values_1)
    loss, mean = 0.0, 0.0
    for i in range(count):
        goal = reward[i] + discount[i] * (min(first[i, 0], second[i, 0]) - alpha * log_prob[i])
        a, b = values_1[i, 0] - goal, values_2[i, 0] - goal
        by_values_1[i, 0], by_values_2[i, 0] = a / _F(count), b / _F(count)
        loss += 0.5 * (a * a + b * b)
        mean += 0.5 * (values_1[i, 0] + values_2[i, 0])
    losses[0], losses[2] = loss / count, mean / count


@compiled(
    "void(float32[:, ::1], float32[:, ::1], float32[::1], float32, float32[:, ::1], float32[:, ::1], float32[::1])"
)
def sac_actor_gradients(
    values_1: np.ndarray,
    values_2: np.ndarray,
    log_prob: np.ndarray,
    alpha: float,
    by_values_1: np.ndarray,
    by_values_2: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Write the gradients of minus the mean of the lower value ``[B, 1]``; the actor's loss and the entropy."""
    count = len(values_1)
    loss, entropy = 0.0, 0.0
    for i in range(count):
        lower = values_1[i, 0] <= values_2[i, 0]
        by_values_1[i, 0] = _F(-1) / _F(count) if lower else _F(0)
        by_values_2[i, 0] = _F(0) if lower else _F(-1) / _F(count)
        loss += alpha * log_prob[i] - (values_1[i, 0] if lower else values_2[i, 0])
        entropy -= log_prob[i]
    losses[1], losses[3] = loss / count, entropy / count


@compiled(
    "void(float32[:], float32[:], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1],"
    " float32)"
)
def td3_critic_gradients(
    reward: np.ndarray,
    discount: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    value: np.ndarray,
    by_found: np.ndarray,
    losses: np.ndarray,
    share: float,
) -> None:
    """Write the gradients of TD3's loss with respect to the values of one critic ``[B, 1]``.

    Add its loss to ``losses[0]`` and ``share`` of its mean value to ``losses[2]``.
    """
    count = len(value)
    loss, mean = 0.0, 0.0
    for i in range(count):
        error = value[i, 0] - (reward[i] + discount[i] * min(first[i, 0], second[i, 0]))
        by_found[i, 0] = _F(2) * error / _F(count)
        loss += error * error
        mean += value[i, 0]
    losses[0] += _F(loss / count)
    losses[2] += share * _F(mean / count)
