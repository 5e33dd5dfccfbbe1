"""The arithmetic of DQN on small perceptrons, without autograd."""

import numpy as np

from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.compiled.perceptrons import CompiledPerceptrons
from arena.tensors.numba_jit import compiled

_F = np.float32
NO_WEIGHTS = np.zeros(0, np.float32)


class QLearning:
    """Action values, and the gradient of DQN's loss; see ``arena.policies.off_policy.dqn``."""

    def __init__(self, acting: CompiledPerceptrons, network: CompiledPerceptrons, target: CompiledPerceptrons) -> None:
        """Create it from the network, twice (acting has buffers of its own), and its target."""
        self._acting, self._network, self._target = acting, network, target

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the values ``[N, actions]`` of observations ``[N, ...]``."""
        self._acting.read(observations)
        return self._acting.forward()[0]

    def gradient(
        self, rows: np.ndarray, weights: np.ndarray | None, double: bool, gradient: np.ndarray, losses: np.ndarray
    ) -> np.ndarray:
        """Write the gradient over rows ``[B]`` into ``gradient`` ``[P]``, and loss and mean value into ``losses``.

        Returns the TD errors ``[B]``. ``weights`` ``[B]`` are importance weights of the rows; None for equal ones.
        """
        count, following = len(rows), rows[FOLLOWING + "0"]
        self._target.read(following)
        (next_values,) = self._target.forward()
        judged = next_values
        if double:
            self._network.read(following)
            judged = self._network.forward()[0].copy()
        best = np.empty(count, np.float32)
        mask = rows["next_mask"] if "next_mask" in (rows.dtype.names or ()) else np.ones((1, 1), np.int8)
        best_values(judged, next_values, mask, best)
        self._network.read(rows[OBSERVATION + "0"])
        (values,) = self._network.forward()
        errors = np.empty(count, np.float32)
        huber_loss_gradients(
            rows["reward"],
            rows["discount"],
            best,
            rows["choice"],
            values,
            NO_WEIGHTS if weights is None else weights,
            self._network.output_gradients[0],
            errors,
            losses,
        )
        self._network.backward(gradient)
        return errors


@compiled("void(float32[:, ::1], float32[:, ::1], int8[:, :], float32[::1])")
def best_values(judged: np.ndarray, values: np.ndarray, mask: np.ndarray, best: np.ndarray) -> None:
    """Write ``values`` ``[B, n]`` of the allowed actions with the greatest ``judged`` ``[B, n]`` into ``best``.

    ``mask`` is ``[B, n]``, nonzero is allowed; ``[1, 1]`` allows everything.
    """
    masked = mask.shape[1] > 1
    for i in range(len(values)):
        chosen, most = 0, _F(-np.inf)
        for j in range(values.shape[1]):
            if (not masked or mask[i, j] != 0) and judged[i, j] > most:
                chosen, most = j, judged[i, j]
        best[i] = values[i, chosen]


@compiled(
    "void(float32[:], float32[:], float32[::1], int64[:], float32[:, ::1], float32[::1], float32[:, ::1],"
    " float32[::1], float32[::1])"
)
def huber_loss_gradients(
    reward: np.ndarray,
    discount: np.ndarray,
    best: np.ndarray,
    choice: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    by_values: np.ndarray,
    errors: np.ndarray,
    losses: np.ndarray,
) -> None:
    """Write the gradients of the mean Huber loss with respect to ``values`` ``[B, n]``; mean loss and value; TD errors.

    The targets are reward + discount * best, all ``[B]``; ``weights`` are ``[B]``, or empty.
    """
    count = len(values)
    by_values[:] = _F(0)
    loss, mean = 0.0, 0.0
    for i in range(count):
        value = values[i, choice[i]]
        error = value - (reward[i] + discount[i] * best[i])
        size = abs(error)
        weight = weights[i] if len(weights) else _F(1)
        loss += weight * (0.5 * error * error if size < 1 else size - 0.5)
        mean += value
        by_values[i, choice[i]] = weight * min(max(error, _F(-1)), _F(1)) / _F(count)
        errors[i] = error
    losses[0], losses[1] = loss / count, mean / count
