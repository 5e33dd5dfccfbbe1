"""A match that the arena steps and in which somebody outside has a seat: a human, a script, any program with HTTP."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from arena.common.seeding import derive_seed
from arena.common.trees import map_tree
from arena.envs.interface import EntitySpaces, Environment, Timestep
from arena.gateway.actors.actor import Actor
from arena.gateway.answers import BadRequest
from arena.gateway.training.agents import LearningAgents
from arena.gateway.values import RowReader, SpaceError, choices_of, first_row, to_json


class Host:
    """Makes the environments of hosted games, and knows who plays what in them.

    Attributes:
      entities: of the environment.
      external: numbers of those that are played from outside.
      readers: what reads the actions of these.
    """

    def __init__(
        self, make: Callable[[], Environment], entities: Sequence[EntitySpaces], external: Sequence[int], seed: int
    ) -> None:
        """Prepare to host.

        Args:
          make: makes a copy of the environment.
          entities: of it.
          external: numbers of the entities that are played from outside.
          seed: the games derive theirs from it.
        """
        self._make, self._seed = make, seed
        self.entities, self.external = tuple(entities), tuple(external)
        self.readers = {number: RowReader(entities[number].action, "action") for number in external}
        self._free: list[Environment] = []
        self._games = 0

    def take(self) -> tuple[Environment, Timestep]:
        """Return an environment and the first timestep of its next episode; ``give_back`` must follow."""
        environment = self._free.pop() if self._free else self._make()
        self._games += 1
        return environment, environment.reset(seed=derive_seed(self._seed, "hosted", self._games))

    def give_back(self, environment: Environment) -> None:
        """Take an environment back for another game."""
        self._free.append(environment)

    def close(self) -> None:
        """Close the environments that no game has."""
        for environment in self._free:
            environment.close()


class HostedGame(Actor):
    """One game: each tick brings the action from outside and takes back what is seen then.

    The players on the other seats act in between. What has been stepped is never taken back: a tick that fails after
    the environment was stepped goes on from there when it is sent again.
    """

    content_type = "application/json"

    def __init__(self, agents: LearningAgents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """Begin an episode; the first tick, without an action, says what is seen."""
        self._agents, self._host = agents, config["host"]
        assert isinstance(self._host, Host)
        self._environment, self._now = self._host.take()
        self._names = [entity.name for entity in self._host.entities]
        self._earned = dict.fromkeys(self._host.external, 0.0)
        self._returns = dict.fromkeys(self._host.external, 0.0)
        self._told = self._stepped = False  # whether something was seen, and whether this tick's action is carried out

    def tick(self, data: bytes) -> bytes:
        """Carry out an action from outside, and return what is seen when the next one is wanted, or at the end."""
        actions: dict[int, Any] = {}
        if not self._stepped:
            actions = self._read(data)
        if actions:
            self._step(actions)
            self._stepped = True
        while not self._now.over and not self._wanted():
            self._step({})
            self._stepped = True
        self._told, self._stepped = True, False
        return self._seen()

    def _wanted(self) -> list[int]:
        """Return the entities whose action is to come from outside."""
        return [number for number in self._host.external if self._now.acting[number]]

    def _read(self, data: bytes) -> dict[int, Any]:
        """Return the actions that a request brings.

        Raises:
          BadRequest: they are not what is wanted; the message says what would be.
        """
        try:
            said = json.loads(data) if data else {}
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise BadRequest('expected a JSON object such as {"action": 3}, found something else')
        if self._now.over:
            raise BadRequest("the game is over: end it, and start another")
        wanted = self._wanted() if self._told else []
        lone = len(self._host.external) == 1
        if lone and "action" in said:
            said = {"actions": {self._names[self._host.external[0]]: said["action"]}, **said}
            del said["action"]
        given = said.get("actions", {})
        unknown = [key for key in said if key != "actions"]
        if unknown or not isinstance(given, dict):
            raise BadRequest(
                f"expected the key {'action' if lone else 'actions'}, found {(unknown or ['no object'])[0]}"
            )
        names = {self._names[number]: number for number in wanted}
        odd = [name for name in given if name not in names]
        missing = [name for name in names if name not in given]
        if odd and not wanted:
            raise BadRequest("expected no action in the first tick, which says what is seen, found one")
        if odd or missing:
            raise BadRequest(
                f"expected an action of {', '.join(names)}, found one of {', '.join(map(str, given)) or 'nobody'}"
            )
        return {number: self._action(number, given[name]) for name, number in names.items()}

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
        """Step the environment, with the actions of the players of the arena beside those from outside."""
        now, agents = self._now, self._agents
        asked = [n for n, name in enumerate(self._names) if now.acting[n] and name in agents]
        masks = {self._names[n]: now.action_masks[n] for n in asked if now.action_masks[n] is not None}
        decided = agents.act({self._names[n]: now.observations[n] for n in asked}, masks) if asked else {}
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
        agents.keep()

    def _seen(self) -> bytes:
        """Return what the entities outside see and have earned."""
        now, said = self._now, {}
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
            said[self._names[number]] = each
        return json.dumps(next(iter(said.values())) if len(said) == 1 else said).encode()

    def end(self, data: bytes) -> bytes:
        """Give the environment back; a game that is not over was abandoned, and is cut where it is."""
        if not self._now.over:
            for agent in self._agents.values():
                if agent.acted:
                    agent.reward(0.0, truncated=True)
        if self._agents.ending == "error":  # it may be broken, and the next game gets another one
            self._environment.close()
        else:
            self._host.give_back(self._environment)
        returns = {self._names[number]: value for number, value in self._returns.items()}
        return json.dumps(
            {"return": next(iter(returns.values()))} if len(returns) == 1 else {"returns": returns}
        ).encode()


def _allowed(action: Any, mask: np.ndarray, sizes: Sequence[int]) -> bool:
    """Whether a mask allows an action, a number or an array of one for each part."""
    choices, first = np.atleast_1d(np.asarray(action)).ravel(), 0
    for choice, size in zip(choices, sizes, strict=True):
        if not mask[first + int(choice)]:
            return False
        first += size
    return True


def _nothing(entity: EntitySpaces) -> Any:
    """Return an action for an entity that does not act, which is ignored."""
    return entity.action.sample()
