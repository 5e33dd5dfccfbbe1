"""Imports between modules: the floors, MPI in one module, and torch out of the processes that only step games."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # what one test has read serves the others
ROOT = Path(__file__).parents[1]
PLACES = {"arena": "arena", "envs": "arena.envs", "policies": "arena.policies"}
CONTRACTS = {"arena.envs.interface"}
"""What the engine imports of environments and policies; all else of theirs it reaches by name, by the registry."""

FLOORS = [
    {"common"},
    {"system"},
    {"protocol", "tensors"},
    {"league", "experience", "comms"},
    {"config"},
    {"plan", "env_manager"},
    {"records", "environment", "export"},
    {"group"},
    {"worker", "learner", "report", "gateway"},
    {"root", "evaluation", "page", "trackers"},
    {"launch"},
    {"api"},
    {"sweeps"},
    {"commands"},
]
"""The rooms (folders of ``arena/``), lowest floor first: a room imports only rooms on lower floors, lazily too, and for
type checkers too: what two rooms need of each other belongs on a floor below both."""

OUTSIDE = {"envs": {"common"}, "policies": {"common", "experience", "tensors"}}
"""Folders outside the floors, and the rooms that they import; policies also import the environment's contract."""

STILL_BROKEN: set[tuple[str, str]] = set()
"""Imports that break the floors, each to be mended and then taken out of here. No new ones."""

PURE = ("arena.common", "arena.protocol", "arena.league", "arena.config", "arena.plan")
"""Rooms that need neither MPI nor torch."""

PROCESSES = {"arena.comms", "arena.root", "arena.environment", "arena.group", "arena.worker", "arena.learner"}
"""What an environment or a policy never touches, so that it runs in any process and in none of ours."""

WITHOUT_TORCH = (
    "arena.launch",
    "arena.commands",
    "arena.comms",
    "arena.system",
    "arena.root",
    "arena.environment",
    "arena.env_manager",
    "arena.records",
    "arena.report",
    "arena.policies.settings",
    "arena.policies.on_policy.settings",
    "arena.policies.off_policy.settings",
    "arena.policies.multi_agent.settings",
    "arena.envs",
)
"""What root and environment processes load (names of modules, or of packages with all that is in them)."""


class Imports(NamedTuple):
    """Imports of a module, by full name.

    Attributes:
      first: when it is imported itself.
      ever: also later, inside functions.
      named: also those that only type checkers read.
    """

    first: frozenset[str]
    ever: frozenset[str]
    named: frozenset[str]


def module_names() -> dict[str, Path]:
    found = {}
    for folder, package in PLACES.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def nodes(tree: ast.AST, *, functions: bool, types: bool = False) -> Iterator[ast.AST]:
    """Yield what runs in a module; if wanted, functions' bodies, and what is there for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and not functions:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not types:
            continue
        yield node
        yield from nodes(node, functions=functions, types=types)


def names_in(found: Iterable[ast.AST], module: str, is_package: bool, known: Iterable[str]) -> Iterator[str]:
    for node in found:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: (1 - node.level if is_package else -node.level) or None]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                below = f"{base}.{alias.name}"
                yield below if below in known else base


def imports_of(source: str, module: str, known: Iterable[str], *, is_package: bool = False) -> Imports:
    tree = ast.parse(source)

    def names(functions: bool, types: bool = False) -> frozenset[str]:
        return frozenset(names_in(nodes(tree, functions=functions, types=types), module, is_package, known))

    return Imports(names(functions=False), names(functions=True), names(functions=True, types=True))


MODULES = module_names()


@functools.cache
def imports_in(name: str) -> Imports:
    """Return what a module of the arena imports. The first test that needs them pays for reading."""
    path = MODULES[name]
    return imports_of(path.read_text("utf-8"), name, MODULES, is_package=path.name == "__init__.py")


def below(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def with_packages(name: str, named: Iterable[str]) -> set[str]:
    """Return those of the arena's modules among ``named``, and the packages around them."""
    around = {".".join(target.split(".")[:i]) for target in named for i in range(1, target.count(".") + 1)}
    # The packages around a module itself are being imported already.
    return {target for target in {*named, *(a for a in around if not below(name, [a]))} if target in MODULES}


def loaded_first(name: str) -> set[str]:
    """Return the arena's modules that importing ``name`` imports directly, and the packages around them."""
    return with_packages(name, imports_in(name).first)


def loaded_ever(name: str) -> set[str]:
    """Return those that it ever imports, inside functions too."""
    return with_packages(name, imports_in(name).ever)


def named(name: str) -> set[str]:
    """Return those that it ever imports, for type checkers too."""
    return with_packages(name, imports_in(name).named)


def way_to(name: str, targets: Iterable[str]) -> list[str] | None:
    """Return the chain of imports by which importing ``name`` loads one of ``targets``, or None if it does not."""
    came_from: dict[str, str | None] = {name: None}
    waiting = [name]
    while waiting:
        module = waiting.pop()
        hits = [target for target in imports_in(module).first if below(target, targets)]
        if hits:
            chain = [hits[0]]
            step: str | None = module
            while step is not None:
                chain.append(step)
                step = came_from[step]
            return chain[::-1]
        for target in loaded_first(module) - came_from.keys():
            came_from[target] = module
            waiting.append(target)
    return None


def chosen(packages: Iterable[str]) -> list[str]:
    return sorted(name for name in MODULES if below(name, packages))


def room_of(name: str) -> str:
    """Return the folder of a module; an empty one for what lies in ``arena/`` itself."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (parts[1] in OUTSIDE or any(parts[1] in rooms for rooms in FLOORS)) else ""


def may_import(importer: str, target: str) -> bool:
    here, there = room_of(importer), room_of(target)
    if here == there or not here:
        return True
    if here in OUTSIDE:
        return there in OUTSIDE[here] or (here == "policies" and target == "arena.envs.interface")
    if there in OUTSIDE:
        return here != "common" and target in CONTRACTS
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return there in floor and floor[there] < floor[here]


@functools.cache
def broken() -> set[tuple[str, str]]:
    """Return the pairs of modules of which the first may not import the second, and does."""
    return {
        (name, target)
        for name in MODULES
        for target in imports_in(name).named & MODULES.keys()
        if not may_import(name, target)
    }


@pytest.mark.parametrize("room", [*sorted(set().union(*FLOORS)), *OUTSIDE])
def test_a_room_imports_only_lower_floors(room):
    assert not sorted(pair for pair in broken() - STILL_BROKEN if room_of(pair[0]) == room)


def test_the_floors_are_those_that_the_documentation_shows():
    table = re.findall(r"(?m)^\| (\d+) \| `(\w+)/` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    floors: dict[str, set[str]] = {}
    for number, room in table:
        floors.setdefault(number, set()).add(room)
    assert [*floors.values()] == FLOORS
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    shown = [set(line.split()) for line in page.split("## The source code")[1].splitlines() if line.startswith("    ")]
    assert shown == FLOORS[::-1]


def test_what_was_mended_is_no_exception_any_more():
    assert not sorted(STILL_BROKEN - broken())


def test_every_module_is_in_a_room():
    assert {name for name in MODULES if not room_of(name)} == {"arena", "arena.registry"}


def test_only_comms_speaks_mpi():
    """The doctor looks at MPI from outside, and before it starts."""
    speakers = {name for name in MODULES if any(below(i, ["mpi4py"]) for i in imports_in(name).ever)}
    assert speakers == {"arena.comms.mpi", "arena.commands.doctor.mpi"}


@pytest.mark.parametrize("name", chosen(PURE))
def test_layouts_and_configuration_work_without_mpi_and_torch(name):
    assert way_to(name, ["mpi4py", "torch"]) is None


def test_the_rule_for_layouts_and_configuration_finds_them():
    assert {"arena.protocol.wire", "arena.plan.layout", "arena.config.run", "arena.config.sections"} <= set(
        chosen(PURE)
    )


@pytest.mark.parametrize("name", chosen(["arena.envs", "arena.policies"]))
def test_environments_and_policies_know_nothing_of_processes(name):
    assert not [target for target in imports_in(name).ever if below(target, PROCESSES)]
    assert way_to(name, PROCESSES) is None


@pytest.mark.parametrize("name", [name for name in MODULES if not below(name, ["arena.envs", "arena.policies"])])
def test_the_engine_knows_no_environment_and_no_policy_but_their_contracts(name):
    known = {target for target in imports_in(name).first if below(target, ["arena.envs", "arena.policies"])}
    assert known <= CONTRACTS


@pytest.mark.parametrize("name", chosen(WITHOUT_TORCH))
def test_what_root_and_environment_processes_load_does_not_import_torch(name):
    assert way_to(name, ["torch"]) is None


def test_what_workers_load_does():
    """The search finds torch where it is, several imports away."""
    assert way_to("arena.policies.sb3", ["torch"]) is not None
    assert way_to("arena.group.member", ["mpi4py"]) is not None


@pytest.mark.parametrize("loaded", [loaded_first, loaded_ever, named])
def test_no_modules_import_each_other_in_a_circle(loaded):
    try:
        order = list(TopologicalSorter({name: loaded(name) for name in MODULES}).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert set(order) == set(MODULES)


def test_root_and_environment_processes_start_without_torch():
    """Packages of others count too: one of them importing torch would cost every such process seconds and memory."""
    engine = ["root.process", "environment.process", "records.writers.run", "report.progress", "launch.ranks.entry"]
    names = [*(f"arena.{name}" for name in engine), "arena.envs.factory"]
    code = f"import sys, {', '.join(names)}; print('torch' in sys.modules, 'arena.comms' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_reading_the_imports_of_a_module():
    source = """
import os.path, torch
from typing import TYPE_CHECKING
from arena import registry
from . import wire
from .errors import ConfigError
if TYPE_CHECKING:
    from arena.comms import World
try:
    import yaml
except ImportError:
    yaml = None
class Model:
    import json
    def method(self):
        import mpi4py.MPI
"""
    known = ["arena.registry", "arena.wire", "arena.errors", "arena.comms"]
    first, ever, all_named = imports_of(source, "arena.worker", known)
    ours = {"arena.registry", "arena.wire", "arena.errors"}
    assert first == {"os.path", "torch", "typing", "yaml", "json"} | ours
    assert ever == first | {"mpi4py.MPI"}
    assert all_named == ever | {"arena.comms"}
    assert imports_of("from .rows import Rows", "arena.diagram", known, is_package=True).first == {"arena.diagram.rows"}
    assert imports_of("from ..wire import Block", "arena.env_manager.base", known).first == {"arena.wire"}


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda folder: folder.name)
def test_a_folder_holds_no_more_modules_than_a_newcomer_can_survey(folder):
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= 18


LONG = {"arena.env_manager.serial": "a manager of copies: its methods for all of them, for some, and for one at a time"}
"""Modules of more than 400 lines, each with its one idea; at most three."""


def test_a_module_is_short_enough_to_be_one_idea():
    found = {name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > 400}
    assert found == LONG.keys()
    assert len(LONG) <= 3
