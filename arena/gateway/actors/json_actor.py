"""The built-in actor: observations, rewards and actions as JSON, so that a game needs no Python."""

import json
import math
from collections.abc import Mapping
from typing import Any

from arena.gateway.actors.actor import Actor
from arena.gateway.actors.agent import Agents
from arena.gateway.http.responses import BadRequest
from arena.gateway.values import SpaceError, to_json

_TICK = {"observation": "observations", "reward": "rewards", "action_mask": "action_masks"}
_END = {"reward": "rewards", "terminated": "terminated", "observation": "observations", "outcome": "outcomes"}
"""Keys of a request with a single agent, and with several: ``terminated`` holds for the whole game."""


class JsonActor(Actor):
    """An actor that exchanges JSON; the guide "Serve a game" describes the messages."""

    content_type = "application/json"

    def __init__(self, agents: Agents, config: Mapping[str, Any], game_id: str, data: bytes) -> None:
        """See ``Actor``. The body of a start is ignored."""
        self._agents = agents
        self._lone = next(iter(agents)) if len(agents) == 1 else None

    async def tick(self, data: bytes) -> bytes:
        """Return the actions of the agents with observations in the request."""
        parsed = self._parsed(data)
        if self._lone is not None and parsed.get("observation") is not None and parsed.keys() <= _TICK.keys():
            return await self._tick_of_the_lone(parsed)  # the most frequent case: the same in fewer steps
        message = self._read(parsed, _TICK)
        observations = message["observations"]
        if not observations:
            word = "observation" if self._lone is not None else "observations"
            raise BadRequest(f"expected {word}, found none")
        unasked = [name for name in message["action_masks"] if name not in observations]
        if unasked:
            raise BadRequest(f"action_masks: expected agents that have an observation, found {unasked[0]}")
        masks = message["action_masks"]
        try:
            checked = {name: self._agents[name].read(value, masks.get(name)) for name, value in observations.items()}
        except SpaceError as error:
            raise BadRequest(str(error)) from None
        self._reward(message["rewards"])
        actions = await self._agents.act_on(checked)
        plain = {name: to_json(action) for name, action in actions.items()}
        return _written({"actions": plain} if message["several"] else {"action": plain[str(self._lone)]})

    async def _tick_of_the_lone(self, message: Mapping[str, Any]) -> bytes:
        assert self._lone is not None
        agent = self._agents[self._lone]
        try:
            checked = agent.read(message["observation"], message.get("action_mask"))
        except SpaceError as error:
            raise BadRequest(str(error)) from None
        reward = message.get("reward")
        if reward is not None:
            self._reward({self._lone: reward})
        action = to_json(agent.take(await agent.request(checked)))
        return b'{"action":%d}' % action if type(action) is int else _written({"action": action})

    async def end(self, data: bytes) -> bytes:
        """Return the agents' returns of their last episodes."""
        if data:
            self._close(self._read(self._parsed(data), _END))
        returns = {name: agent.episode_return for name, agent in self._agents.items()}
        return _written({"returns": returns} if self._lone is None else {"return": returns[self._lone]})

    def _close(self, message: dict[str, Any]) -> None:
        """End the episodes of all agents as requested."""
        terminated = message["terminated"]
        if terminated is None:
            terminated = self._agents.ending != "stop"
        if not isinstance(terminated, bool):
            raise BadRequest(f"terminated: expected true or false, found {_shown(terminated)}")
        for name, outcome in message["outcomes"].items():
            if isinstance(outcome, bool) or not isinstance(outcome, (str, int)):
                raise BadRequest(f"outcome: expected win, draw, loss or a rank, found {_shown(outcome)} for {name}")
        rewards = {name: _number(value) for name, value in message["rewards"].items()}
        try:
            for name, observation in message["observations"].items():
                self._agents[name].read(observation)
            self._check_first(rewards)
            for name, agent in self._agents.items():
                agent.reward(
                    rewards.get(name, 0.0),
                    terminated=terminated,
                    truncated=not terminated,
                    observation=message["observations"].get(name),
                    outcome=message["outcomes"].get(name),
                )
        except SpaceError as error:
            raise BadRequest(str(error)) from None

    def _reward(self, message: Mapping[str, Any]) -> None:
        rewards = {name: _number(value) for name, value in message.items()}
        self._check_first(rewards)
        for name, reward in rewards.items():
            self._agents[name].reward(reward)

    def _check_first(self, rewards: Mapping[str, float]) -> None:
        for name, reward in rewards.items():
            if reward and not self._agents[name].acted:
                raise BadRequest(f"reward: expected 0 before the first action, found {reward:g}")

    def _read(self, message: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
        """Return the items of a request by agent.

        Raises:
          BadRequest: it has unknown keys or agents.
        """
        plural = [key for key in keys.values() if key != "terminated"]
        several = self._lone is None or any(key in message for key in plural)
        allowed = keys.values() if several else keys.keys()
        unknown = [key for key in message if key not in allowed]
        if unknown:
            raise BadRequest(f"expected the keys {', '.join(allowed)}, found {_shown(unknown[0])}")
        fields: dict[str, Any] = {"several": several, "terminated": message.get("terminated")}
        for singular, many in keys.items():
            if many != "terminated":
                fields[many] = self._by_agent(message, many) if several else self._of_the_lone(message, singular)
        return fields

    def _of_the_lone(self, message: Mapping[str, Any], key: str) -> dict[str, Any]:
        return {str(self._lone): message[key]} if message.get(key) is not None else {}

    def _by_agent(self, message: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = message.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise BadRequest(f"{key}: expected an object with agents as keys, found {_shown(value)}")
        for name in value:
            if name not in self._agents:
                raise BadRequest(f"{key}: there is no agent {_shown(name)}; agents: {', '.join(self._agents)}")
        return {name: item for name, item in value.items() if item is not None}

    @staticmethod
    def _parsed(data: bytes) -> dict[str, Any]:
        try:
            text = data.decode()
            message, end = _DECODER.raw_decode(text) if text.startswith("{") else (None, -1)
            if end != len(text):  # white space around it, or an error
                message = _DECODER.decode(text)
        except BadRequest:
            raise
        except (ValueError, RecursionError):
            raise BadRequest("expected one JSON object, found something else") from None
        if not isinstance(message, dict):
            raise BadRequest(f"expected one JSON object, found {_shown(message)}")
        return message


def _raise_constant(name: str) -> Any:
    raise BadRequest(f"expected finite numbers, found {name}")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadRequest(f"reward: expected a finite number, found {_shown(value)}")
    return float(value)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _written(answer: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(answer).encode()


_DECODER = json.JSONDecoder(parse_constant=_raise_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"))
