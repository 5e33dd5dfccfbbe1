"""Sources of environments: Gymnasium's registry, PettingZoo's modules, OpenSpiel, and code of users."""

import contextlib
import errno
import importlib
import importlib.metadata
import importlib.util
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

from arena.common.copies.placeholders import CopyPlace
from arena.common.errors import ConfigError
from arena.common.registry import EXTRAS, load, missing_package
from arena.common.text import suggestion
from arena.common.user_code import source_of_error

# CPython's messages for calls that do not fit a signature. Other TypeErrors of a user's code are faults of that code,
# and keep their traceback.
MISFITS = (
    "unexpected keyword argument",
    "required positional argument",
    "required keyword-only",
    "multiple values for",
)

NO_ENVIRONMENTS = (
    "arena-mpi",
    "ray",
    "stable-baselines3",
    "sb3-contrib",
    "tianshou",
    "torchrl",
    "pufferlib",
    "envpool",
)
"""Packages that require Gymnasium, and name ids of others in their sources."""


NUMBERED = ("port", "base_port", "worker_id", "env_index")
"""Parameters that differ between the copies of a simulator."""

CONTEXTS = {"config", "env_config", "env_context"}
"""Names of the parameter by which environments of RLlib get their settings."""


class EnvContext(dict[str, Any]):
    """Settings of an RLlib environment, with the attributes that differ between copies.

    Attributes:
      worker_index: one more than the index of its match: 1, 2, ...
      vector_index: number of the copy in its match.
      num_workers: 0, since matches are no runners of RLlib.
      remote, recreated_worker: False.
    """

    num_workers = 0
    remote = recreated_worker = False

    def __init__(self, settings: Mapping[str, Any], place: CopyPlace) -> None:
        """Hold the settings of the copy at ``place``."""
        super().__init__(settings)
        self.worker_index, self.vector_index = place.match + 1, place.copy


def from_gymnasium(use: str, name: str, settings: dict[str, Any], render: bool) -> gymnasium.Env:
    """Make the environment that Gymnasium has registered under ``name``, with keyword arguments of ``gymnasium.make``.

    Gymnasium's passive checker is off unless ``disable_env_checker: false`` is among the settings: the adapter checks
    the first observation itself, and one wrapper less is faster.
    """
    if name.startswith("ALE/"):
        _import("ale_py", use)
    keywords = {"disable_env_checker": True, **settings}
    try:
        return _rendering(lambda **more: gymnasium.make(name, **keywords, **more), settings, render)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise missing(error, use) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"unknown environment {use!r}{_similar(name)}: {error}") from error
    except (TypeError, ValueError, AssertionError) as error:
        raise refused(use, settings, error, _gymnasium_entry(name)) from error


def _similar(name: str) -> str:
    with contextlib.suppress(ImportError):
        importlib.import_module("ale_py")  # registers its games, so that they can be suggested
    if f"ALE/{name}" in gymnasium.registry:
        return f" (did you mean 'gymnasium:ALE/{name}'?)"
    if (package := _registering_package(name)) is not None:
        return f" (the package {package} registers it: write 'gymnasium:{package}:{name}')"
    return suggestion(f"gymnasium:{name}", [f"gymnasium:{known}" for known in gymnasium.registry])


def _registering_package(name: str) -> str | None:
    """Return the installed package that registers a Gymnasium id when it is imported, by its source.

    Only packages that require Gymnasium are searched; none is imported.
    """
    literals = f'"{name}"', f"'{name}'"
    for distribution in importlib.metadata.distributions():
        needed = " ".join(distribution.requires or ()).lower()
        if "gymnasium" not in needed or distribution.metadata["Name"].lower() in NO_ENVIRONMENTS:
            continue
        for file in distribution.files or ():
            if file.suffix != ".py" or len(file.parts) < 2 or file.parts[0] == "..":
                continue
            with contextlib.suppress(OSError, UnicodeDecodeError):
                text = file.read_text()
                if any(literal in text for literal in literals):
                    return file.parts[0]
    return None


def _gymnasium_entry(name: str) -> Any:
    entry = gymnasium.spec(name).entry_point
    with contextlib.suppress(Exception):
        return gymnasium.envs.registration.load_env_creator(entry) if isinstance(entry, str) else entry
    return None


def from_pettingzoo(use: str, name: str, settings: dict[str, Any], render: bool, force_aec: bool) -> Any:
    """Return the environment of a PettingZoo module: its ``parallel_env`` if it has one, else its AEC ``env``.

    Args:
      use: the name in the configuration, for messages.
      name: the module, with or without ``pettingzoo.``; ``classic/tictactoe-v3`` is accepted as well.
      settings: keyword arguments.
      render: whether to request RGB frames.
      force_aec: whether to use ``env`` even if there is a ``parallel_env``.
    """
    module = _pettingzoo_module(use, name.replace("/", ".").replace("-v", "_v"))
    parallel = None if force_aec else getattr(module, "parallel_env", None)
    make = parallel or getattr(module, "env", None)
    if make is None:
        required = "env" if force_aec else "parallel_env or env"
        raise ConfigError(f"{use!r}: {module.__name__} has no {required}; expected a PettingZoo environment module")
    try:
        return _rendering(lambda **more: make(**settings, **more), settings, render)
    except ImportError as error:
        raise missing(error, use) from error
    except (TypeError, ValueError, AssertionError) as error:
        raise refused(use, settings, error, getattr(module, "raw_env", make)) from error


def _pettingzoo_module(use: str, name: str) -> ModuleType:
    _import("pettingzoo", use)
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{use!r}: expected a module such as pettingzoo:classic.tictactoe_v3, found {name!r}")
    for candidate in (name, f"pettingzoo.{name}"):
        try:
            with warnings.catch_warnings():
                # Importing a module by its name is fine here, whatever newer way PettingZoo prefers.
                warnings.simplefilter("ignore", DeprecationWarning)
                return importlib.import_module(candidate)
        except ImportError as error:
            absent = error.name or "?"
            # Another location is tried only if the module itself is absent.
            if absent in EXTRAS or not f"{candidate}.".startswith(f"{absent}."):
                raise missing(error, use) from error
    raise ConfigError(
        f"{use!r}: there is no module {name!r}, nor one in pettingzoo{suggestion(name, _pettingzoo_names())}; "
        "expected for example pettingzoo:classic.tictactoe_v3 or pettingzoo:mpe2.simple_tag_v3"
    )


def _pettingzoo_names() -> list[str]:
    """Return the names of installed, versioned environment modules, as written in a configuration."""
    names = []
    for package, pattern in (("pettingzoo", "*/*_v[0-9]*.py"), ("mpe2", "*_v[0-9]*.py")):
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            for path in Path(place).glob(pattern):
                family = path.parent.name if package == "pettingzoo" else package
                names.append(f"{family}.{path.stem}")
    return names


def from_openspiel(use: str, name: str, settings: dict[str, Any]) -> Any:
    """Load the game that OpenSpiel has registered under ``name``, with the game's own parameters.

    Names and parameters are checked beforehand: OpenSpiel would print all of them if one is unknown.
    """
    _import("pyspiel", use)
    import pyspiel

    known = {kind.short_name: kind for kind in pyspiel.registered_games()}
    if name not in known:
        hint = suggestion(f"openspiel:{name}", [f"openspiel:{game}" for game in known])
        raise ConfigError(
            f"unknown environment {use!r}{hint}; expected one of OpenSpiel's games, such as openspiel:kuhn_poker, with "
            "its parameters as settings"
        )
    takes = known[name].parameter_specification
    unknown = [key for key in settings if key not in takes]
    if unknown:
        hint = suggestion(unknown[0], takes)
        accepted = ", ".join(sorted(takes)) or "no settings"
        raise ConfigError(f"{use!r} has no parameter {unknown[0]!r}{hint}; it takes {accepted}")
    # YAML writes 1 where OpenSpiel requires 1.0.
    fitting = {key: float(v) if isinstance(takes[key], float) and type(v) is int else v for key, v in settings.items()}
    try:
        return pyspiel.load_game(name, fitting)
    except (pyspiel.SpielError, TypeError, IndexError) as error:
        raise ConfigError(f"{use!r} refuses its settings {settings}: {error}") from error


def from_code(use: str, reference: str, settings: dict[str, Any], render: bool, place: CopyPlace) -> Any:
    """Call the object that ``package.module:name`` or ``path/to/file.py:name`` points to, with the settings.

    A constructor of RLlib's form gets its dict as an ``EnvContext``.

    Raises:
      ConfigError: there is no such object, a package is missing, or it rejects the settings.
      OSError: it needs a port that another copy has; the message names the placeholder.
    """
    make = load(reference)
    if not callable(make):
        raise ConfigError(f"{use!r}: expected a function or class that makes an environment, found {make!r:.80}")
    # Only functions with a rendering parameter get a request to render.
    if render and "render_mode" in (keywords_of(make) or ()):
        settings = {"render_mode": "rgb_array", **settings}
    for name in CONTEXTS & settings.keys():
        if isinstance(settings[name], dict):
            settings[name] = EnvContext(settings[name], place)
    try:
        return make(**settings)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        names = [name for name in keywords_of(make) or () if name in NUMBERED] or ["port"]
        example = "port: '{port}'" if "port" in names else f"{names[0]}: '{{index}}'"
        reason = f"{error.strerror} (each copy needs its own: env.settings: {{{example}}}){source_of_error(error)}"
        raise OSError(error.errno, reason) from error
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise missing(error, use) from error
    except TypeError as error:
        if not any(misfit in str(error) for misfit in MISFITS):
            raise
        raise refused(use, settings, error, make) from error


def _rendering(make: Callable[..., Any], settings: dict[str, Any], render: bool) -> Any:
    """Call ``make`` with ``render_mode`` if requested; an environment without ``render_mode`` is made without."""
    if not render or "render_mode" in settings:
        return make()
    try:
        return make(render_mode="rgb_array")
    except TypeError as error:
        if "render_mode" not in str(error):
            raise
        return make()


def _import(package: str, use: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise missing(error, use) from error


def missing(error: Exception, use: str) -> ConfigError:
    """Return the error for a failed import, or for Gymnasium's report of one, with the package to install."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, ImportError) and cause.name):
        cause = cause.__cause__
    if isinstance(cause, ImportError):
        return missing_package(cause, repr(use))
    return ConfigError(f"{use!r}: {error}")


def keywords_of(make: Any) -> list[str] | None:
    """Return the names of the keyword arguments of a callable, or None if they cannot be inspected."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters) and len(parameters) == 1:
        return None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def refused(use: str, settings: dict[str, Any], error: Exception, make: Any) -> ConfigError:
    """Return the error for rejected settings, with the keyword arguments that are accepted."""
    accepted = keywords_of(make) if make is not None else None
    remedy = f"; it takes {', '.join(accepted) or 'no settings'}" if accepted is not None else ""
    reason = str(error).partition(" was raised from the environment creator")[0].rstrip(".")
    return ConfigError(f"{use!r} refuses its settings {settings}: {reason}{remedy}")
