"""Unmodified Stable-Baselines3 algorithms in a custom loop, made distributed by a hook on their optimizers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces as gym_spaces
from pydantic import ValidationError
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import nn

from arena.common.errors import ConfigError
from arena.common.registry import is_reference, load
from arena.policies.encoders.images import is_image
from arena.policies.loader import explain
from arena.policies.settings.sb3 import StableBaselines3Settings

WITHOUT_OPTIMIZER = ("TRPO", "ARS")
"""Classes of sb3_contrib that change their policy without an optimizer step."""


class StableBaselines3:
    """Runs an algorithm of Stable-Baselines3 on the proxy.

    Each worker of a group runs the whole algorithm on its own environments, with the weights of the first one. Before
    every optimizer step the gradients are averaged over the group, so that the weights stay equal. This requires the
    same number of steps everywhere, so that settings by which workers would decide separately are rejected.
    """

    Settings = StableBaselines3Settings

    def __init__(self, env: Any, group: Any, **settings: Any) -> None:
        """Build the algorithm.

        Args:
          env: a ``gymnasium.Env``, or a ``gymnasium.vector.VectorEnv`` with same-step autoreset.
          group: all workers of the player.
          settings: see ``StableBaselines3Settings``.

        Raises:
          ConfigError: the settings are wrong, or the algorithm rejects them or the spaces.
        """
        try:
            chosen = StableBaselines3Settings(**settings)
        except ValidationError as error:
            raise ConfigError(f"settings of policy 'sb3': {explain(error)}") from error
        arguments = dict(chosen.arguments)
        if group.size > 1:
            _refuse_lonely_decisions(arguments)
        if arguments.get("seed") is not None:
            arguments["seed"] += group.rank  # the same stream on every worker would collect the same data
        wrapped = _adapt(env)
        policy = chosen.policy or _default_policy(wrapped.observation_space)
        try:
            self.model = _algorithm(chosen.algorithm, group.size > 1)(policy, wrapped, **arguments)
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(
                f"Stable-Baselines3 refuses to build {chosen.algorithm} with {policy}: {error}"
            ) from error
        self.model.set_logger(Logger(None, [_GroupWriter(group)]))
        self._started = False
        self._share(group)

    def _share(self, group: Any) -> None:
        group.broadcast(self.model.policy)
        for optimizer in _optimizers(self.model):
            parameters = _Parameters([p for part in optimizer.param_groups for p in part["params"]])

            def average(*_: Any, parameters: nn.Module = parameters) -> None:
                group.average_gradients(parameters)

            optimizer.register_step_pre_hook(average)

    def run(self, steps: int) -> None:
        """Learn for ``steps`` transition steps more; the algorithm rounds up to whole rollouts."""
        self.model.learn(steps, reset_num_timesteps=not self._started)
        self._started = True

    def act(self, observations: Any) -> np.ndarray:
        """Return sampled actions for one observation, or for ``[N, ...]`` of them."""
        return self.model.predict(observations)[0]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return weights and optimizer states as flat tensors; a replay buffer is not kept."""
        state = {"num_timesteps": torch.tensor(self.model.num_timesteps)}
        for name, values in self.model.get_parameters().items():
            if name.endswith("optimizer"):
                for index, entries in values["state"].items():
                    for key, value in entries.items():
                        state[f"{name}/{index}/{key}"] = torch.as_tensor(value).detach().cpu().clone()
            else:
                for key, value in values.items():
                    state[f"{name}/{key}"] = value.detach().cpu().clone()
        for name, variable in _variables(self.model).items():
            state[name] = variable.detach().cpu().clone()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state returned by ``state_dict``.

        Raises:
          ConfigError: it belongs to another algorithm or other spaces.
        """
        tensors = {name: torch.as_tensor(value) for name, value in state.items()}
        parameters: dict[str, Any] = {}
        try:
            self.model.num_timesteps = int(tensors.pop("num_timesteps"))
            for name, values in self.model.get_parameters().items():
                under = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + "/")}
                if name.endswith("optimizer"):
                    entries: dict[int, dict[str, torch.Tensor]] = {}
                    for key, value in under.items():
                        index, _, entry = key.partition("/")
                        entries.setdefault(int(index), {})[entry] = value
                    parameters[name] = {"state": entries, "param_groups": values["param_groups"]}
                else:
                    parameters[name] = under
            self.model.set_parameters(parameters)
            with torch.no_grad():
                for name, variable in _variables(self.model).items():
                    variable.copy_(tensors[name])
        except (KeyError, ValueError, RuntimeError) as error:
            raise ConfigError(f"this state does not fit {type(self.model).__name__}: {error}") from error
        self._started = True


class _Parameters(nn.Module):
    """A module of exactly one optimizer's parameters: others may have no gradient yet."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self._listed = parameters  # a plain list: registering would replace a parameter that is a bare tensor

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return the parameters."""
        return iter(self._listed)


class _GroupWriter(KVWriter):
    """Writer of the algorithm's own metrics to the group."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        """Report every number."""
        numbers = {key: float(value) for key, value in key_values.items() if isinstance(value, (int, float, np.number))}
        self._group.log(**numbers)

    def close(self) -> None:
        """Do nothing: the writer holds no resources."""


class _Vector(VecEnv):
    """A Gymnasium vector environment with the interface of Stable-Baselines3."""

    def __init__(self, env: gymnasium.vector.VectorEnv) -> None:
        self._env = env
        self._actions: Any = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        seeds = [seed for seed in self._seeds if seed is not None]
        observations, _ = self._env.reset(seed=seeds or None)  # type: ignore[arg-type]  # accepts one seed per copy too
        self._reset_seeds()
        self._reset_options()
        return _copy(observations)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        observations, rewards, terminated, truncated, step_infos = self._env.step(self._actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for copy in np.flatnonzero(done):
            infos[copy]["terminal_observation"] = _copy(step_infos["final_obs"][copy])
            infos[copy]["TimeLimit.truncated"] = bool(truncated[copy] and not terminated[copy])
        return _copy(observations), rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self._env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self._env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self._env, method_name)(*args, **kwargs)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


def _copy(observations: Any) -> Any:
    # The proxy overwrites its result in the next step; the algorithm holds on to it for longer.
    if isinstance(observations, dict):
        return {key: np.array(value) for key, value in observations.items()}
    return np.array(observations)


def _adapt(env: Any) -> gymnasium.Env | VecEnv:
    """Return the proxy in a form that Stable-Baselines3 accepts."""
    if isinstance(env, gymnasium.Env):
        return env
    if not isinstance(env, gymnasium.vector.VectorEnv):
        raise ConfigError(
            "sb3 plays one entity: expected a seat with one, found several; give each its own seat, or use ppo, which "
            "plays them with shared weights"
        )
    mode = env.metadata.get("autoreset_mode")
    if mode != gymnasium.vector.AutoresetMode.SAME_STEP:
        raise ConfigError(
            f"sb3 with several copies expects them to reset in the step that ends an episode, found autoreset mode "
            f"{getattr(mode, 'value', mode)}; set env.autoreset: same_step, or num_envs: 1"
        )
    return VecMonitor(_Vector(env))


def _default_policy(space: gym_spaces.Space) -> str:
    if isinstance(space, gym_spaces.Dict):
        return "MultiInputPolicy"
    return "CnnPolicy" if is_image(space, "auto") else "MlpPolicy"


def _optimizers(model: Any) -> Iterable[torch.optim.Optimizer]:
    """Return every optimizer of an algorithm, each once, in an order that is the same on all workers."""
    names = sorted(name for name in model.get_parameters() if name.endswith("optimizer"))
    for name in names:
        optimizer = model
        for part in name.split("."):
            optimizer = getattr(optimizer, part)
        yield optimizer


def _variables(model: Any) -> dict[str, torch.Tensor]:
    """Return the learned tensors of an algorithm outside its networks, such as SAC's entropy coefficient."""
    return {name: getattr(model, name) for name in model._get_torch_save_params()[1]}


def _algorithm(name: str, shared: bool) -> type[BaseAlgorithm]:
    """Return the class that ``name`` stands for.

    Args:
      name: a class of stable_baselines3, or a reference to one with its interface.
      shared: whether several workers learn together.

    Raises:
      ConfigError: there is none, or workers cannot share what it learns.
    """
    found = load(name) if is_reference(name) else getattr(stable_baselines3, name)
    if not (isinstance(found, type) and issubclass(found, BaseAlgorithm)):
        raise ConfigError(f"sb3: expected a subclass of stable_baselines3's BaseAlgorithm, found {name!r}")
    if shared and found.__name__ in WITHOUT_OPTIMIZER:
        raise ConfigError(
            f"sb3 in a group of several workers: {found.__name__} changes its policy without an optimizer, and only "
            "gradients before a step of one are averaged; give the player one worker"
        )
    return found


def _refuse_lonely_decisions(arguments: Mapping[str, Any]) -> None:
    """Check that no setting lets workers take different numbers of optimizer steps, which would deadlock them."""
    if arguments.get("target_kl") is not None:
        raise ConfigError(
            "sb3 in a group of several workers: expected no target_kl, since each worker would stop its epochs by "
            f"its own KL, found {arguments['target_kl']}; leave it out, or use ppo, which decides on the group's"
        )
    frequency = arguments.get("train_freq")
    if isinstance(frequency, (list, tuple)) and frequency[-1] == "episode":
        raise ConfigError(
            "sb3 in a group of several workers: expected train_freq in steps, since episodes end at different times, "
            f"found {list(frequency)}; give a number of steps"
        )
