"""Advantages and discounted sums from rewards and values, over time steps and lanes."""

import numpy as np

from arena.tensors.numba_jit import compiled


@compiled(
    "float32[:, ::1](float32[:, ::1], float32[:, ::1], boolean[:, ::1], boolean[:, ::1], boolean[:, ::1],"
    " int64[:, ::1], float64, float64)"
)
def advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    valid: np.ndarray,
    next_slot: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """Return the generalised advantage estimate of each transition.

    With s' the observation that follows a transition from s, and the sum running over the transitions of one episode
    that come after it in the rollout::

        delta = r + gamma * V(s') * (1 - terminated) - V(s)
        advantage = delta + gamma * lambda * delta' + (gamma * lambda)^2 * delta'' + ...

    (Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016, equation 16.)
    A truncated episode ends there, but its last delta keeps ``V(s')``, the value of the final observation.
    A transition without a valid successor (unfinished when the rollout ended, or void) ends the sum in the same way.

    Args:
      rewards: ``[T, L]``, of the transition that begins in each time step.
      values: ``[T + 1, L]``, of the observation in each time step, step T included.
      terminated: ``[T, L]`` bool.
      truncated: ``[T, L]`` bool.
      valid: ``[T, L]`` bool, whether a transition begins.
      next_slot: ``[T, L]``, the time step of s', later than the transition's own and at most T.
      gamma: discount of each transition.
      gae_lambda: lambda.

    Returns:
      ``[T, L]`` float32, 0 without a valid transition. Adding ``values[:-1]`` gives the lambda returns.
    """
    horizon, lanes = rewards.shape
    estimates = np.zeros((horizon + 1, lanes), np.float32)
    for t in range(horizon - 1, -1, -1):
        for lane in range(lanes):
            if not valid[t, lane]:
                continue
            after = next_slot[t, lane]
            goal = np.float64(rewards[t, lane])
            if not terminated[t, lane]:
                goal += gamma * values[after, lane]
                if not truncated[t, lane]:
                    goal += gamma * gae_lambda * estimates[after, lane]
            estimates[t, lane] = goal - values[t, lane]
    return estimates[:horizon]


@compiled("float64[:, ::1](float32[:, ::1], boolean[:, ::1], boolean[:, ::1], float64, float64[::1])")
def discounted_sums(
    rewards: np.ndarray, valid: np.ndarray, starts: np.ndarray, gamma: float, before: np.ndarray
) -> np.ndarray:
    """Return the discounted sum of all rewards of the episode so far, ``[T, L]``: R_t = gamma R_(t - 1) + r_t.

    Args:
      rewards: ``[T, L]``, of the transition that begins in each time step.
      valid: ``[T, L]``, whether a transition begins; 0 is returned where none does.
      starts: ``[T + 1, L]``, whether an episode starts.
      gamma: discount of each transition.
      before: ``[L]``, the sums before the first time step; changed to those after the last one.
    """
    sums = np.zeros(rewards.shape)
    for t in range(len(rewards)):
        for lane in range(rewards.shape[1]):
            if starts[t, lane]:
                before[lane] = 0.0
            if valid[t, lane]:
                before[lane] = gamma * before[lane] + rewards[t, lane]
                sums[t, lane] = before[lane]
    return sums
