"""Hosted games: a match that the arena steps, with an external seat for a human, a script or any HTTP client."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from arena.common.seeding import derive_seed
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces, Environment, Timestep
from arena.gateway.actors.actor import Actor
from arena.gateway.http.responses import BadRequest
from arena.gateway.training.agents import LearningAgents
from arena.gateway.values import RowReader, SpaceError, choices_of, first_row, to_json


class Host:
    """Environments of hosted games, with their external entities.

    Attributes:
      entities: entities of the environment.
      external: indices of the external ones.
      readers: readers of the external entities' actions.
    """

    def __init__(
        self, make: Callable[[], Environment], entities: Sequence[EntitySpaces], external: Sequence[int], seed: int
    ) -> None:
        """Prepare to host.

        Args:
          make: constructs a copy of the environment.
          entities: its entities.
          external: indices of the external entities.
          seed: root of the games' seeds.
        """
        self._make, self._seed = make, seed
        self.entities, self.external = tuple(entities), tuple(external)
        self.readers = {number: RowReader(entities[number].action, "action") for number in external}
        self._free: list[Environment] = []
        self._games = 0

    def acquire(self) -> tuple[Environment, Timestep]:
        """Return an environment and the first timestep of its next episode; ``release`` must follow."""
        environment = self._free.pop() if self._free else self._make()
        self._games += 1
        return environment, environment.reset(seed=derive_seed(self._seed, "hosted", self._games))

    def release(self, environment: Environment) -> None:
        """Keep an environment for another game."""
        self._free.append(environment)

    def close(self) -> None:
        """Close the environments that no game uses."""
        for environment in self._free:
            environment.close()


class HostedGame(Actor):
    """One game: each tick sends the external action and returns the next observation.

    The players on the other seats act in between. Steps are never rolled back: a tick that fails after the environment
    stepped continues from there when it is sent again.
    """

    content_type = "application/json"

    def __init__(self, agents: LearningAgents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """Begin an episode; the first tick, without an action, returns the first observation."""
        self._agents, self._host = agents, config["host"]
        assert isinstance(self._host, Host)
        self._environment, self._now = self._host.acquire()
        self._names = [entity.name for entity in self._host.entities]
        self._earned = dict.fromkeys(self._host.external, 0.0)
        self._returns = dict.fromkeys(self._host.external, 0.0)
        # whether an observation was returned, and whether this tick's action was carried out
        self._has_shown = self._stepped = False

    def tick(self, data: bytes) -> bytes:
        """Carry out an external action, and return the observation for the next one, or the final one."""
        actions: dict[int, Any] = {}
        if not self._stepped:
            actions = self._read(data)
        if actions:
            self._step(actions)
            self._stepped = True
        while not self._now.over and not self._wanted():
            self._step({})
            self._stepped = True
        self._has_shown, self._stepped = True, False
        return self._seen()

    def _wanted(self) -> list[int]:
        """Return the entities that need an external action."""
        return [number for number in self._host.external if self._now.acting[number]]

    def _read(self, data: bytes) -> dict[int, Any]:
        """Return the actions in a request.

        Raises:
          BadRequest: they are not the required ones; the message states those.
        """
        try:
            message = json.loads(data) if data else {}
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise BadRequest('expected a JSON object such as {"action": 3}, found something else')
        if self._now.over:
            raise BadRequest("the game is over: end it, and start another")
        expected = self._wanted() if self._has_shown else []
        lone = len(self._host.external) == 1
        if lone and "action" in message:
            message = {"actions": {self._names[self._host.external[0]]: message["action"]}, **message}
            del message["action"]
        received = message.get("actions", {})
        unknown = [key for key in message if key != "actions"]
        if unknown or not isinstance(received, dict):
            raise BadRequest(
                f"expected the key {'action' if lone else 'actions'}, found {(unknown or ['no object'])[0]}"
            )
        names = {self._names[number]: number for number in expected}
        odd = [name for name in received if name not in names]
        missing = [name for name in names if name not in received]
        if odd and not expected:
            raise BadRequest("expected no action in the first tick, which returns the first observation, found one")
        if odd or missing:
            raise BadRequest(
                f"expected an action of {', '.join(names)}, found one of {', '.join(map(str, received)) or 'nobody'}"
            )
        return {number: self._action(number, received[name]) for name, number in names.items()}

    def _action(self, number: int, value: Any) -> Any:
        try:
            action = first_row(self._host.readers[number](value))
        except SpaceError as error:
            raise BadRequest(f"{error}{self._legal(number)}") from None
        mask = self._now.action_masks[number]
        if mask is not None and not _allowed(action, mask, choices_of(self._host.entities[number].action)):
            raise BadRequest(f"action: found {to_json(action)}, which is not allowed now{self._legal(number)}")
        return action

    def _legal(self, number: int) -> str:
        mask, space = self._now.action_masks[number], self._host.entities[number].action
        if mask is None or len(choices_of(space)) > 1:
            return ""
        start = int(getattr(space, "start", 0))
        return f"; expected one of {', '.join(str(start + choice) for choice in np.flatnonzero(mask))}"

    def _step(self, actions: dict[int, Any]) -> None:
        """Step the environment, with the actions of the arena's players and the external ones."""
        now, agents = self._now, self._agents
        acting = [n for n, name in enumerate(self._names) if now.acting[n] and name in agents]
        masks = {self._names[n]: now.action_masks[n] for n in acting if now.action_masks[n] is not None}
        decided = agents.act({self._names[n]: now.observations[n] for n in acting}, masks) if acting else {}
        every = [
            actions.get(number, decided.get(name, _nothing(entity)))
            for number, (name, entity) in enumerate(zip(self._names, self._host.entities, strict=True))
        ]
        self._now = now = self._environment.step(every)
        for number in actions:
            agents.outsiders[number].act()
        for number, name in enumerate(self._names):
            outcome = now.infos[number].get("outcome")
            reward, over, cut = float(now.rewards[number]), bool(now.terminated[number]), bool(now.truncated[number])
            if number in agents.outsiders:
                self._earned[number] += reward
                self._returns[number] += reward
                agents.outsiders[number].reward(reward, over=over, cut=cut and not over, outcome=outcome)
            elif name in agents and agents[name].acted:
                last = now.observations[number] if cut and not over else None
                agents[name].reward(
                    reward, terminated=over, truncated=cut and not over, observation=last, outcome=outcome
                )
        agents.commit()

    def _seen(self) -> bytes:
        """Return observations and rewards of the external entities."""
        now, observations = self._now, {}
        for number in self._host.external:
            each: dict[str, Any] = {
                "observation": to_json(map_tree(np.asarray, now.observations[number])),
                "reward": self._earned[number],
                "terminated": now.over and not bool(now.truncated[number]),
                "truncated": bool(now.truncated[number]),
                "acts": bool(now.acting[number]),
            }
            if now.action_masks[number] is not None:
                each["action_mask"] = np.asarray(now.action_masks[number]).tolist()
            if now.over and now.infos[number].get("outcome") is not None:
                each["outcome"] = now.infos[number]["outcome"]
            self._earned[number] = 0.0
            observations[self._names[number]] = each
        return json.dumps(next(iter(observations.values())) if len(observations) == 1 else observations).encode()

    def end(self, data: bytes) -> bytes:
        """Return the environment; an unfinished game was abandoned, and is truncated."""
        if not self._now.over:
            for agent in self._agents.values():
                if agent.acted:
                    agent.reward(0.0, truncated=True)
        if self._agents.ending == "error":  # it may be broken, and the next game gets another one
            self._environment.close()
        else:
            self._host.release(self._environment)
        returns = {self._names[number]: value for number, value in self._returns.items()}
        return json.dumps(
            {"return": next(iter(returns.values()))} if len(returns) == 1 else {"returns": returns}
        ).encode()


def _allowed(action: Any, mask: np.ndarray, sizes: Sequence[int]) -> bool:
    """Return whether a mask allows an action, a number or an array of one for each part."""
    choices, first = np.atleast_1d(np.asarray(action)).ravel(), 0
    for choice, size in zip(choices, sizes, strict=True):
        if not mask[first + int(choice)]:
            return False
        first += size
    return True


def _nothing(entity: EntitySpaces) -> Any:
    """Return an action for an entity that does not act, which is ignored."""
    return entity.action.sample()
