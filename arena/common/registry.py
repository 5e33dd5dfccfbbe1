"""Registered names and references to code: the engine's only access to environments and policies."""

import ast
import contextlib
import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.common.text import suggestion

ENVIRONMENTS = {
    "touchdown": "arena.envs.touchdown.environment:Touchdown",
    "ecr": "arena.envs.ecr.environment:EmptyContainers",
    "matrix_game": "arena.envs.matrix_game:MatrixGame",
    "gateway": "arena.gateway.training.spaces:ExternalGames",
}


MOST_NAMES = 8
"""Names of a module that an error lists at most."""

USER_MODULE = "arena_user_"
"""Prefix of the names of modules that were loaded from files."""

PICKLED = ".pkl"
"""Suffix of a pickled class or function: of a notebook's cell, written by ``arena.train`` into the run directory."""

_unpickled: dict[Path, Any] = {}


class PolicyEntry(NamedTuple):
    """A built-in policy: the location of its class, and of its settings model in a module without torch."""

    reference: str
    settings: str


POLICIES = {
    "random": PolicyEntry("arena.policies.random:Random", "arena.policies.settings.random:RandomSettings"),
    "external": PolicyEntry("arena.policies.external:External", "arena.config.gateway:ExternalSettings"),
    "ppo": PolicyEntry("arena.policies.on_policy.ppo:PPO", "arena.policies.on_policy.settings:PPOSettings"),
    "dqn": PolicyEntry("arena.policies.off_policy.dqn:DQN", "arena.policies.off_policy.settings:DQNSettings"),
    "sac": PolicyEntry("arena.policies.off_policy.sac:SAC", "arena.policies.off_policy.settings:SACSettings"),
    "td3": PolicyEntry("arena.policies.off_policy.td3:TD3", "arena.policies.off_policy.settings:TD3Settings"),
    "ddpg": PolicyEntry("arena.policies.off_policy.td3:DDPG", "arena.policies.off_policy.settings:DDPGSettings"),
    "maddpg": PolicyEntry(
        "arena.policies.multi_agent.maddpg:MADDPG", "arena.policies.multi_agent.settings:MADDPGSettings"
    ),
    "masac": PolicyEntry("arena.policies.multi_agent.masac:MASAC", "arena.policies.multi_agent.settings:MASACSettings"),
    "sb3": PolicyEntry("arena.policies.sb3:StableBaselines3", "arena.policies.settings.sb3:StableBaselines3Settings"),
}

# Top-level package -> the extra of this project that installs it.
EXTRAS = {
    "ale_py": "atari",
    "cv2": "atari",
    "mujoco": "mujoco",
    "Box2D": "box2d",
    "mpe2": "mpe",
    "pygame": "pygame",
    "pyspiel": "openspiel",
    "stable_baselines3": "sb3",
    "shimmy": "shimmy",
    "imageio": "video",
    "imageio_ffmpeg": "video",
    "httptools": "serve",
    "uvloop": "serve",
    "prometheus_client": "serve",
    "IPython": "notebook",
    "pandas": "notebook",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "optuna": "search",
    "wandb": "wandb",
    "mlflow": "mlflow",
    "trackio": "trackio",
}


def missing_package(error: ImportError, wanted_by: str) -> ConfigError:
    """Return a ConfigError that names the package to install for a failed import."""
    package = (error.name or "").split(".")[0]
    if package in EXTRAS:
        remedy = f"pip install 'arena-mpi[{EXTRAS[package]}]'"
    elif package:
        remedy = f"pip install {package}"
    else:
        remedy = str(error)
    return ConfigError(f"{wanted_by} needs the package {package!r}, which cannot be imported; install it: {remedy}")


@contextlib.contextmanager
def packages_for(wanted_by: str) -> Iterator[None]:
    """Turn failed imports in a block into errors that name the package to install.

    Raises:
      ConfigError: a package is missing.
    """
    try:
        yield
    except ImportError as error:
        raise missing_package(error, wanted_by) from error


def load(reference: str) -> Any:
    """Return the object that ``package.module:name`` or ``path/to/file.py:name`` points to.

    Raises:
      ConfigError: there is no such module, file or name, or a package that it imports is missing.
    """
    place, _, name = reference.partition(":")
    if not name:
        raise ConfigError(f"expected package.module:name or path/to/file.py:name, found {reference!r}")
    if place.endswith(PICKLED):
        return _unpickle(Path(place), reference)
    if place.endswith(".py"):
        module = _load_file(Path(place), reference)
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            if error.name and (place == error.name or place.startswith(error.name + ".")):
                raise ConfigError(f"{reference!r}: no module named {error.name!r} can be imported from here") from error
            raise missing_package(error, repr(reference)) from error
    target = getattr(module, name, None)
    if target is None:
        public = {n: value for n, value in vars(module).items() if not n.startswith("_")}
        own = [n for n, value in public.items() if getattr(value, "__module__", None) == module.__name__]
        raise ConfigError(f"{reference!r}: {place} has no {name!r}{_instead(name, list(public), own)}")
    return target


def _load_file(path: Path, reference: str) -> Any:
    path = path.resolve()
    _check_is_file(path, reference)
    # One module per file, however often it is loaded, so that classes compare equal and pickles resolve.
    module_name = f"{USER_MODULE}{path.stem}_{derive_seed(0, str(path))}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            del sys.modules[module_name]
            raise missing_package(error, repr(reference)) from error
        except BaseException:
            del sys.modules[module_name]
            raise
    return sys.modules[module_name]


def _unpickle(path: Path, reference: str) -> Any:
    path = path.resolve()
    if path not in _unpickled:  # one object per file, so that classes compare equal
        _check_is_file(path, reference)
        try:
            _unpickled[path] = pickle.loads(path.read_bytes())
        except ImportError as error:
            raise missing_package(error, repr(reference)) from error
        except Exception as error:
            raise ConfigError(
                f"{reference!r}: expected a class or function of a notebook, found a file that cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
    return _unpickled[path]


def _check_is_file(path: Path, reference: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{reference!r}: there is no file {path.resolve()}")


def check_reference(reference: str) -> None:
    """Check that a module or file exists and defines a name, without running it.

    Names that a module binds other than by a statement at its top level are not checked.

    Raises:
      ConfigError: it does not.
    """
    place, _, name = reference.partition(":")
    if place.endswith((".py", PICKLED)):
        _check_is_file(Path(place), reference)
        if place.endswith(PICKLED):
            return
        path: Path | None = Path(place)
    else:
        try:
            spec = importlib.util.find_spec(place)
        except ImportError as error:
            spec = None
            if error.name and not place.startswith(error.name):
                return  # a package around it fails for another reason, which importing it reports
        except ValueError:
            return
        if spec is None:
            raise ConfigError(f"{reference!r}: no module named {place!r} can be imported from here")
        path = Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    if path is None:
        return
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{reference!r}: {place} is no Python: {error}") from error
    names = _names_of(tree)
    if names is not None and name not in names:
        own = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        raise ConfigError(f"{reference!r}: {place} has no {name!r}{_instead(name, names, own)}")


def _instead(name: str, names: Sequence[str], own: Sequence[str]) -> str:
    """Return what to write for a name that a module lacks: a similar one, else those that it defines itself.

    Args:
      name: the name.
      names: all names in the module.
      own: classes and functions that the module defines.
    """
    public = [each for each in own if not each.startswith("_")]
    return suggestion(name, names) or (f"; it has {', '.join(public[:MOST_NAMES])}" if public else "")


def _names_of(module: ast.Module) -> list[str] | None:
    """Return the names that a module binds at its top level, None if its source does not determine them."""
    names: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.Name) and node.id in ("globals", "setattr", "exec"):
            return None
    return None if "*" in names or "__getattr__" in names else names


def is_reference(use: str) -> bool:
    """Return whether ``use`` is a reference to code (``module:name``) rather than a registered name."""
    return ":" in use


def policy_class(use: str) -> type:
    """Return the policy class that ``use`` names; imports torch for most.

    A class with ``act`` and ``learn`` that does not implement the arena's interface is wrapped in an adapter.
    """
    cls = load(POLICIES[use].reference if use in POLICIES else _reference(use, "policy", POLICIES))
    own = ("run", "Settings", "make_model")  # defined by policies written for the arena
    if hasattr(cls, "act") and hasattr(cls, "learn") and not any(hasattr(cls, name) for name in own):
        return load("arena.policies.agent:adapt_agent")(cls)
    return cls


def policy_settings_model(use: str) -> type | None:
    """Return the settings model of a built-in policy without importing torch; None for a user's class."""
    if use in POLICIES:
        return load(POLICIES[use].settings)
    _reference(use, "policy", POLICIES)
    return None


def _reference(use: str, kind: str, valid: dict) -> str:
    if not is_reference(use):
        raise ConfigError(
            f"unknown {kind} {use!r}{suggestion(use, valid)}; expected one of {', '.join(sorted(valid))}, "
            f"package.module:name or path/to/file.py:name"
        )
    return use


def make_environment(use: str, settings: Any, wrappers: Any = (), **options: Any) -> Any:
    """Return the environment that ``use`` names, behind the common interface; see ``arena.envs.factory``."""
    return importlib.import_module("arena.envs.factory").make_environment(use, settings, wrappers, **options)


def build_policy(use: str, spaces: Any, settings: Any, *, lanes: int, seed: int) -> Any:
    """Return the act-learn policy that ``use`` names, see ``arena.policies.loader.build``; imports torch."""
    build = load("arena.policies.loader:build")
    return build(use, spaces, settings, lanes=lanes, seed=seed)


def load_policy_weights(policy: Any, path: str | Path) -> None:
    """Load a policy's weights from a safetensors file, see ``arena.policies.loader.load_weights``; imports torch."""
    load("arena.policies.loader:load_weights")(policy, path)


def load_encoder_weights(policy: Any, path: str | Path) -> None:
    """Load a policy's encoder alone, see ``arena.policies.loader.load_encoder_weights``; imports torch."""
    load("arena.policies.loader:load_encoder_weights")(policy, path)


def check_networks(spaces: Any, settings: Any, announce: Callable[[str], None]) -> list[str]:
    """Check the networks of a policy for an entity, see ``arena.policies.network_checks``; imports torch."""
    return load("arena.policies.network_checks:check_networks")(spaces, settings, announce)
