"""The arithmetic of MADDPG on small perceptrons, without autograd: entities of one kind that share their networks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arena.experience.joint_layout import NEXT_STATE, STATE, prefix_of
from arena.experience.row_layout import FOLLOWING, OBSERVATION
from arena.policies.compiled.perceptrons import CompiledPerceptrons

OWN = prefix_of(0)
NEVER = np.float32(-1e9)  # logit of a masked action


class TeamShape(NamedTuple):
    """Numbers of a team of one kind.

    Attributes:
      entities: k.
      width: numbers of an action, as critics read it.
      sizes: number of values of each discrete choice; empty for a Box.
      masked: whether actions have masks.
    """

    entities: int
    width: int
    sizes: Sequence[int]
    masked: bool


class CompiledActor:
    """An actor that entities of one kind share."""

    def __init__(self, actor: CompiledPerceptrons) -> None:
        """Store the actor, with buffers of its own."""
        self._actor = actor

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the actor's outputs ``[N, outputs]`` for observations ``[N, ...]``."""
        self._actor.read(observations)
        return self._actor.forward()[0]


class CompiledMADDPG:
    """The gradients of MADDPG's losses; see ``arena.policies.multi_agent.maddpg``."""

    def __init__(
        self,
        shape: TeamShape,
        actor: CompiledPerceptrons,
        target_actor: CompiledPerceptrons,
        critics: CompiledPerceptrons,
        targets: CompiledPerceptrons,
        own_critic: CompiledPerceptrons,
    ) -> None:
        """Create it.

        Args:
          shape: numbers of the team.
          actor: the actor.
          target_actor: the target actor.
          critics: one critic or two, with a head for each entity.
          targets: their targets.
          own_critic: the first critic, with buffers of its own.
        """
        self._shape, self._actor, self._target_actor = shape, actor, target_actor
        self._critics, self._targets, self._own_critic = critics, targets, own_critic
        self._starts = np.cumsum([0, *shape.sizes[:-1]])
        self._each = np.arange(shape.entities)

    def gradient(
        self,
        rows: np.ndarray,
        weights: np.ndarray | None,
        noise: Sequence[np.ndarray],
        by_critics: np.ndarray,
        by_actor: np.ndarray | None,
        losses: np.ndarray,
        *,
        target_noise: float,
        target_noise_clip: float,
        logit_penalty: float,
    ) -> np.ndarray:
        """Write the gradients over rows ``[B]``; ``losses`` in the order of ``MADDPG.LOSSES``.

        Args:
          rows: see ``JointTransitions``.
          weights: ``[B]``, importance weights; None for equal ones.
          noise: of the next actions and of new ones, ``[B, k, width]`` each.
          by_critics: ``[P]``, gradient of the critics.
          by_actor: ``[P]``, gradient of the actor; None in a step without an actor update.
          losses: ``[3]``.
          target_noise: see ``MADDPGSettings``, like the next two.
          target_noise_clip: bound of it.
          logit_penalty: weight of squared logits.

        Returns:
          The errors of all critics, ``[critics, B, k]``; zeros for absent entities.
        """
        shape, count = self._shape, len(rows)
        present, next_present = (rows[name].astype(np.float32) for name in ("present", "next_present"))
        # Targets
        outputs = self._forward(self._target_actor, rows, FOLLOWING)
        if shape.sizes:
            following = self._sample(self._masked(outputs, rows, "next_mask"), noise[0])
        else:
            drawn = np.clip(np.float32(target_noise) * noise[0], -target_noise_clip, target_noise_clip)
            following = np.clip(np.tanh(outputs) + drawn, -1, 1)
        following *= next_present[:, :, None]
        self._fill(self._targets, rows, NEXT_STATE, next_present, following.reshape(count, -1))
        values = self._targets.forward()
        lowest = values[0] if len(values) == 1 else np.minimum(*values)
        goal = rows["reward"] + rows["discount"] * next_present * lowest
        # Critics
        stored = self._stored(rows) * present[:, :, None]
        self._fill(self._critics, rows, STATE, present, stored.reshape(count, -1))
        values = self._critics.forward()
        errors = np.stack([(each - goal) * present for each in values])
        scaled = errors if weights is None else errors * weights[:, None]
        for buffer, error in zip(self._critics.output_gradients, scaled, strict=True):
            np.multiply(error, np.float32(2 / present.size), out=buffer)
        losses[0] = float((scaled * errors).mean((1, 2)).sum())
        losses[2] = float(np.mean([(each * present).mean() for each in values]))
        self._critics.backward(by_critics)
        losses[1] = 0
        if by_actor is not None:
            losses[1] = self._actor_gradient(rows, present, stored, noise[1], by_actor, logit_penalty)
        return errors

    def _actor_gradient(
        self,
        rows: np.ndarray,
        present: np.ndarray,
        stored: np.ndarray,
        noise: np.ndarray,
        by_actor: np.ndarray,
        logit_penalty: float,
    ) -> float:
        """Write the gradient of the actor's loss, and return the loss."""
        shape, count, each = self._shape, len(rows), self._each
        k, width = shape.entities, shape.width
        outputs = self._forward(self._actor, rows, OBSERVATION)
        soft = np.zeros(0, np.float32)
        if shape.sizes:
            logits = self._masked(outputs, rows, "mask") + noise
            soft = np.concatenate([_softmax(part) for part in self._split(logits)], 2)
            action = self._one_hot(logits)
        else:
            action = np.tanh(outputs)
        room = self._own_critic.room(count * k)
        by_entity = room.reshape(count, k, -1)
        joint = np.repeat(stored[:, None], k, 1)  # [B, k, k, width]
        joint[:, each, each] = action * present[:, :, None]
        state = room.shape[1] - k - k * width
        by_entity[:, :, :state] = self._critics.room(count)[:, None, :state]  # encoded for the critics' loss
        by_entity[:, :, state : state + k] = present[:, None]
        by_entity[:, :, state + k :] = joint.reshape(count, k, -1)
        values = self._own_critic.forward()[0].reshape(count, k, k)[:, each, each]
        by_values = self._own_critic.output_gradients[0]
        by_values[...] = 0
        by_values.reshape(count, k, k)[:, each, each] = present / np.float32(-present.size)
        by_inputs = self._own_critic.input_gradients().reshape(count, k, -1)[:, :, state + k :]
        by_action = by_inputs.reshape(count, k, k, width)[:, each, each] * present[:, :, None]
        loss = -(values * present).mean()
        if shape.sizes:
            parts = zip(self._split(by_action), self._split(soft), strict=True)
            by_outputs = np.concatenate([s * (g - (g * s).sum(2, keepdims=True)) for g, s in parts], 2)
            if shape.masked:
                by_outputs[self._forbidden(rows, "mask")] = 0
            penalised = outputs * present[:, :, None]
            by_outputs += penalised * np.float32(2 * logit_penalty / width / present.size)
            loss += logit_penalty * (penalised * outputs).mean(2).mean()
        else:
            by_outputs = by_action * (1 - action**2)
        self._actor.output_gradients[0][...] = by_outputs.reshape(count * k, width)
        self._actor.backward(by_actor)
        return float(loss)

    def _forward(self, network: CompiledPerceptrons, rows: np.ndarray, prefix: str) -> np.ndarray:
        """Return an actor's outputs ``[B, k, width]`` for the observations of rows."""
        network.read(rows[f"{OWN}{prefix}0"].reshape(len(rows) * self._shape.entities, -1))
        return network.forward()[0].reshape(len(rows), self._shape.entities, -1)

    def _fill(
        self, critics: CompiledPerceptrons, rows: np.ndarray, prefix: str, present: np.ndarray, joint: np.ndarray
    ) -> None:
        """Write the inputs of critics: state, presence and the actions of all entities."""
        room = critics.read(rows[f"{prefix}0"])
        state = room.shape[1] - present.shape[1] - joint.shape[1]
        room[:, state : state + present.shape[1]] = present
        room[:, state + present.shape[1] :] = joint

    def _stored(self, rows: np.ndarray) -> np.ndarray:
        """Return the stored actions as critics read them, ``[B, k, width]``."""
        choice = rows[f"{OWN}choice"]
        if not self._shape.sizes:
            return choice
        one_hot = np.zeros((*choice.shape[:2], self._shape.width), np.float32)
        np.put_along_axis(one_hot, choice + self._starts, 1, 2)
        return one_hot

    def _split(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the parts of each discrete choice."""
        return np.split(array, self._starts[1:], 2)

    def _one_hot(self, scores: np.ndarray) -> np.ndarray:
        """Return one-hot vectors of the greatest score of each choice, ``[B, k, width]``."""
        best = np.stack([part.argmax(2) for part in self._split(scores)], 2) + self._starts
        one_hot = np.zeros_like(scores)
        np.put_along_axis(one_hot, best, 1, 2)
        return one_hot

    def _sample(self, logits: np.ndarray, gumbel: np.ndarray) -> np.ndarray:
        return self._one_hot(logits + gumbel)

    def _forbidden(self, rows: np.ndarray, name: str) -> np.ndarray:
        """Return the actions that a mask forbids, ``[B, k, width]``; none where a mask is empty."""
        mask = rows[f"{OWN}{name}"] != 0
        return ~mask & mask.any(2, keepdims=True)

    def _masked(self, logits: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
        return np.where(self._forbidden(rows, name), NEVER, logits) if self._shape.masked else logits


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(2, keepdims=True))
    return weights / weights.sum(2, keepdims=True)
