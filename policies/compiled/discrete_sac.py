"""The arithmetic of SAC with discrete choices on small perceptrons, without autograd."""

import numpy as np

from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.compiled.perceptrons import CompiledPerceptrons
from arena.tensors.numba_jit import compiled

_F = np.float32
NEVER = _F(-1e9)
NO_MASK = np.ones((1, 0), np.int8)


class CompiledDiscreteSAC:
    """The gradients of the losses of ``arena.policies.off_policy.sac_discrete``."""

    def __init__(
        self,
        acting: CompiledPerceptrons,
        actor: CompiledPerceptrons,
        critics: CompiledPerceptrons,
        targets: CompiledPerceptrons,
        sizes: list[int],
    ) -> None:
        """Create it; ``acting`` and ``actor`` are the same network with separate buffers."""
        self._acting, self._actor, self._critics, self._targets = acting, actor, critics, targets
        self._sizes = np.array(sizes, np.int64)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the actor's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        self._acting.read(observations)
        return self._acting.forward()[0]

    def gradient(
        self,
        rows: np.ndarray,
        noise: None,
        alpha: float,
        by_critics: np.ndarray,
        by_actor: np.ndarray | None,
        losses: np.ndarray,
    ) -> None:
        """Write the gradients over rows ``[B]``; arguments as in ``CompiledSAC.gradient``, without noise."""
        count = len(rows)
        masked = "mask" in (rows.dtype.names or ())
        following, before = rows[FOLLOWING + "0"], rows[OBSERVATION + "0"]
        self._actor.read(following)
        self._targets.read(following)
        value = np.empty(count, np.float32)
        mask = rows["next_mask"] if masked else NO_MASK
        soft_values(self._actor.forward()[0], mask, self._sizes, *self._targets.forward(), alpha, value)
        self._critics.read(before)
        first, second = self._critics.forward()
        critic_gradients(
            rows["reward"],
            rows["discount"],
            value,
            rows["choice"],
            self._sizes,
            first,
            second,
            *self._critics.output_gradients,
            losses,
        )
        self._critics.backward(by_critics)
        losses[1] = losses[3] = 0
        losses[4] = alpha
        if by_actor is None:
            return
        self._actor.read(before)
        mask = rows["mask"] if masked else NO_MASK
        actor_gradients(
            self._actor.forward()[0], mask, self._sizes, first, second, alpha, self._actor.output_gradients[0], losses
        )
        self._actor.backward(by_actor)


@compiled("void(float32[::1], int8[:], int64[::1], float32[::1])")
def log_softmax(logits: np.ndarray, mask: np.ndarray, sizes: np.ndarray, log_p: np.ndarray) -> None:
    """Write the log probabilities ``[A]`` of the values of each choice for logits ``[A]``.

    ``mask`` ``[A]`` is nonzero where a value is allowed; ``[0]`` allows everything.
    """
    start = 0
    for size in sizes:
        end = start + size
        most = _F(-np.inf)
        for j in range(start, end):
            log_p[j] = logits[j] if len(mask) == 0 or mask[j] != 0 else NEVER
            most = max(most, log_p[j])
        scale = _F(0)
        for j in range(start, end):
            scale += np.exp(log_p[j] - most)
        rest = most + np.log(scale)
        for j in range(start, end):
            log_p[j] -= rest
        start = end


@compiled("void(float32[:, ::1], int8[:, :], int64[::1], float32[:, ::1], float32[:, ::1], float32, float32[::1])")
def soft_values(
    logits: np.ndarray,
    mask: np.ndarray,
    sizes: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    alpha: float,
    values: np.ndarray,
) -> None:
    """Write the values ``[B]`` of observations: expectation over the actions, plus ``alpha`` times the entropy.

    Args:
      logits: ``[B, A]``, of all choices side by side.
      mask: ``[B, A]``, nonzero is allowed; ``[1, 0]`` allows everything.
      sizes: number of values of each choice.
      first: ``[B, A]``, values of one critic.
      second: those of the other.
      alpha: entropy coefficient.
      values: written.
    """
    single, masks = len(sizes) == 1, len(mask)  # without a mask there is one empty row, for all samples
    log_p = np.empty(logits.shape[1], np.float32)
    for i in range(len(logits)):
        log_softmax(logits[i], mask[i % masks], sizes, log_p)
        entropy, total_1, total_2 = _F(0), _F(0), _F(0)
        for j in range(len(log_p)):
            p = np.exp(log_p[j])
            entropy -= p * log_p[j] if p > _F(0) else _F(0)
            total_1 += p * (min(first[i, j], second[i, j]) if single else first[i, j])
            total_2 += p * second[i, j]
        values[i] = (total_1 if single else min(total_1, total_2)) + alpha * entropy


@compiled(
    "void(float32[:], float32[:], float32[::1], int64[:, :], int64[::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], float32[:, ::1], float32[::1])"
)
def critic_gradients(
    reward: np.ndarray,
    discount: np.ndarray,
    next_value: np.ndarray,
    choice: np.ndarray,
    sizes: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    by_first: np.ndarray,
    by_second: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Write the gradients of the critics' loss with respect to their values ``[B, A]``.

    ``choice`` ``[B, choices]`` are the actions taken. The loss is written to ``losses[0]``, the mean value to
    ``losses[2]``.
    """
    count = len(first)
    by_first[:] = _F(0)
    by_second[:] = _F(0)
    loss, mean = 0.0, 0.0
    for i in range(count):
        a, b, start = _F(0), _F(0), 0
        for c in range(len(sizes)):
            a += first[i, start + choice[i, c]]
            b += second[i, start + choice[i, c]]
            start += sizes[c]
        goal = reward[i] + discount[i] * next_value[i]
        mean += 0.5 * (a + b)
        a, b, start = a - goal, b - goal, 0
        loss += 0.5 * (a * a + b * b)
        for c in range(len(sizes)):
            by_first[i, start + choice[i, c]] = a / _F(count)
            by_second[i, start + choice[i, c]] = b / _F(count)
            start += sizes[c]
    losses[0], losses[2] = loss / count, mean / count


@compiled(
    "void(float32[:, ::1], int8[:, :], int64[::1], float32[:, ::1], float32[:, ::1], float32, float32[:, ::1],"
    " float32[::1])"
)
def actor_gradients(
    logits: np.ndarray,
    mask: np.ndarray,
    sizes: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    alpha: float,
    by_logits: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Write the gradients of the actor's loss with respect to its logits, its loss and the entropy.

    With f = alpha log p - Q, the loss is the mean of the sum of p f, and its gradient with respect to a logit is
    p (f - sum of p f) / B. Arguments as in ``soft_values``.
    """
    single, masks = len(sizes) == 1, len(mask)
    count, outputs = logits.shape
    p, log_p, lower = np.empty(outputs, np.float32), np.empty(outputs, np.float32), np.empty(outputs, np.float32)
    loss, all_entropy = 0.0, 0.0
    for i in range(count):
        log_softmax(logits[i], mask[i % masks], sizes, log_p)
        total_1, total_2 = _F(0), _F(0)
        for j in range(outputs):
            p[j] = np.exp(log_p[j])
            total_1 += p[j] * first[i, j]
            total_2 += p[j] * second[i, j]
        for j in range(outputs):
            lower[j] = min(first[i, j], second[i, j]) if single else first[i, j] if total_1 <= total_2 else second[i, j]
        start = 0
        for size in sizes:
            mean, entropy = _F(0), _F(0)
            for j in range(start, start + size):
                if p[j] > _F(0):
                    mean += p[j] * (alpha * log_p[j] - lower[j])
                    entropy -= p[j] * log_p[j]
            for j in range(start, start + size):
                by_logits[i, j] = _F(0)
                if p[j] > _F(0):
                    by_logits[i, j] = p[j] * (alpha * log_p[j] - lower[j] - mean) / _F(count)
            loss += mean
            all_entropy += entropy
            start += size
    losses[1], losses[3] = loss / count, all_entropy / count
