"""The built-in actor: observations, rewards and actions as JSON, so that a game needs no line of Python."""

import json
import math
from collections.abc import Mapping
from typing import Any

from arena.gateway.actors.actor import Actor
from arena.gateway.actors.agent import Agents
from arena.gateway.answers import BadRequest
from arena.gateway.values import SpaceError, to_json

_TICK = {"observation": "observations", "reward": "rewards", "action_mask": "action_masks"}
_END = {"reward": "rewards", "terminated": "terminated", "observation": "observations", "outcome": "outcomes"}
"""What a request may say, for a lone agent and for several: ``terminated`` holds for the whole game."""


class JsonActor(Actor):
    """See the guide "Serve a game" for what is exchanged."""

    content_type = "application/json"

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """See ``Actor``. What a start brings is not read."""
        self._agents = agents
        self._lone = next(iter(agents)) if len(agents) == 1 else None

    async def tick(self, data: bytes) -> bytes:
        """Return the actions of the agents whose observations came."""
        parsed = self._parsed(data)
        if self._lone is not None and parsed.get("observation") is not None and parsed.keys() <= _TICK.keys():
            return await self._tick_of_the_lone(parsed)  # as most ask: the same in fewer steps
        said = self._read(parsed, _TICK)
        observations = said["observations"]
        if not observations:
            word = "observation" if self._lone is not None else "observations"
            raise BadRequest(f"expected {word}, found none")
        unasked = [name for name in said["action_masks"] if name not in observations]
        if unasked:
            raise BadRequest(f"action_masks: expected agents that have an observation, found {unasked[0]}")
        masks = said["action_masks"]
        try:
            seen = {name: self._agents[name].read(value, masks.get(name)) for name, value in observations.items()}
        except SpaceError as error:
            raise BadRequest(str(error)) from None
        self._reward(said["rewards"])
        actions = await self._agents.act_on(seen)
        plain = {name: to_json(action) for name, action in actions.items()}
        return _written({"actions": plain} if said["several"] else {"action": plain[str(self._lone)]})

    async def _tick_of_the_lone(self, said: Mapping[str, Any]) -> bytes:
        assert self._lone is not None
        agent = self._agents[self._lone]
        try:
            seen = agent.read(said["observation"], said.get("action_mask"))
        except SpaceError as error:
            raise BadRequest(str(error)) from None
        reward = said.get("reward")
        if reward is not None:
            self._reward({self._lone: reward})
        action = to_json(agent.take(await agent.ask(seen)))
        return b'{"action":%d}' % action if type(action) is int else _written({"action": action})

    async def end(self, data: bytes) -> bytes:
        """Return what the agents have earned in their last episodes."""
        if data:
            self._close(self._read(self._parsed(data), _END))
        returns = {name: agent.episode_return for name, agent in self._agents.items()}
        return _written({"returns": returns} if self._lone is None else {"return": returns[self._lone]})

    def _close(self, said: dict[str, Any]) -> None:
        """End the episodes of all agents as the game says."""
        terminated = said["terminated"]
        if terminated is None:
            terminated = self._agents.ending != "stop"
        if not isinstance(terminated, bool):
            raise BadRequest(f"terminated: expected true or false, found {_told(terminated)}")
        for name, outcome in said["outcomes"].items():
            if isinstance(outcome, bool) or not isinstance(outcome, (str, int)):
                raise BadRequest(f"outcome: expected win, draw, loss or a rank, found {_told(outcome)} for {name}")
        rewards = {name: _number(value) for name, value in said["rewards"].items()}
        try:
            for name, observation in said["observations"].items():
                self._agents[name].read(observation)
            self._check_first(rewards)
            for name, agent in self._agents.items():
                agent.reward(
                    rewards.get(name, 0.0),
                    terminated=terminated,
                    truncated=not terminated,
                    observation=said["observations"].get(name),
                    outcome=said["outcomes"].get(name),
                )
        except SpaceError as error:
            raise BadRequest(str(error)) from None

    def _reward(self, said: Mapping[str, Any]) -> None:
        rewards = {name: _number(value) for name, value in said.items()}
        self._check_first(rewards)
        for name, reward in rewards.items():
            self._agents[name].reward(reward)

    def _check_first(self, rewards: Mapping[str, float]) -> None:
        for name, reward in rewards.items():
            if reward and not self._agents[name].acted:
                raise BadRequest(f"reward: expected 0 before the first action, found {reward:g}")

    def _read(self, said: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
        """Return what a request says, by agent.

        Raises:
          BadRequest: it has unknown keys or agents.
        """
        plural = [key for key in keys.values() if key != "terminated"]
        several = self._lone is None or any(key in said for key in plural)
        allowed = keys.values() if several else keys.keys()
        unknown = [key for key in said if key not in allowed]
        if unknown:
            raise BadRequest(f"expected the keys {', '.join(allowed)}, found {_told(unknown[0])}")
        found: dict[str, Any] = {"several": several, "terminated": said.get("terminated")}
        for one, many in keys.items():
            if many != "terminated":
                found[many] = self._by_agent(said, many) if several else self._of_the_lone(said, one)
        return found

    def _of_the_lone(self, said: Mapping[str, Any], key: str) -> dict[str, Any]:
        return {str(self._lone): said[key]} if said.get(key) is not None else {}

    def _by_agent(self, said: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = said.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadRequest(f"{key}: expected an object with agents as keys, found {_told(value)}")
        for name in value:
            if name not in self._agents:
                raise BadRequest(f"{key}: there is no agent {_told(name)}; agents: {', '.join(self._agents)}")
        return {name: item for name, item in value.items() if item is not None}

    @staticmethod
    def _parsed(data: bytes) -> dict[str, Any]:
        try:
            text = data.decode()
            said, end = _DECODER.raw_decode(text) if text.startswith("{") else (None, -1)
            if end != len(text):  # there is white space around it, or something else
                said = _DECODER.decode(text)
        except BadRequest:
            raise
        except (ValueError, RecursionError):
            raise BadRequest("expected one JSON object, found something else") from None
        if not isinstance(said, dict):
            raise BadRequest(f"expected one JSON object, found {_told(said)}")
        return said


def _refuse_constant(name: str) -> Any:
    raise BadRequest(f"expected finite numbers, found {name}")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadRequest(f"reward: expected a finite number, found {_told(value)}")
    return float(value)


def _told(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _written(answer: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(answer).encode()


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
