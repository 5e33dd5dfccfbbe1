"""The installed package is complete, has one name, and is what was tested."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from arena.common import registry

pytestmark = pytest.mark.xdist_group("the wheel")  # which is built once

ROOT = Path(__file__).parents[1]
# Folder in the checkout -> folder in an installation.
PLACES = {"arena": "arena", "envs": "arena/envs", "policies": "arena/policies"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, built from a copy so that no build folder is left behind."""
    work = tmp_path_factory.mktemp("wheel")
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, work)
    for folder in PLACES:
        shutil.copytree(ROOT / folder, work / folder, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "out", "."]
    subprocess.run(build, cwd=work, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, timeout=200)
    (built,) = (work / "out").glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def sources() -> Iterator[tuple[Path, str]]:
    """Yield each module of the checkout and where an installation has it."""
    for folder, installed in PLACES.items():
        for path in (ROOT / folder).rglob("*.py"):
            yield path, f"{installed}/{path.relative_to(ROOT / folder).as_posix()}"


def requirements(metadata: Message) -> Iterator[tuple[Requirement, bool]]:
    """Yield each requirement that counts on this Python, and whether it belongs to the core rather than to an extra."""
    extras = metadata.get_all("Provides-Extra") or []
    for text in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement, True
        elif any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement, False


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, Requirement]:
    """Return what constraints.txt pins on this Python, by package."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    parsed = [Requirement(line) for line in lines if line]
    return {canonical(pin.name): pin for pin in parsed if pin.marker is None or pin.marker.evaluate()}


@pytest.mark.tier("default")
def test_wheel_holds_every_module_under_one_name(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {place for _, place in sources()} <= held
    assert {name.split("/")[0] for name in held} == {"arena"}, "an installation must own one name"


def test_wheel_is_typed(wheel: zipfile.ZipFile) -> None:
    """Without the marker, type checkers of users ignore every annotation in it."""
    assert "arena/py.typed" in wheel.namelist()


def test_wheel_works_without_the_checkout(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "site")
    # -S leaves out the editable installation, which would lead back to the checkout.
    path = os.pathsep.join([str(tmp_path / "site"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    code = "import arena.envs.touchdown as t, arena.policies.settings.networks as s; print(t.__file__, s.__file__)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.count(str(tmp_path / "site" / "arena")) == 2


@pytest.mark.parametrize("where", ["checkout", "elsewhere", "beside a clone called arena"])
def test_editable_installation_is_found_from(where: str, tmp_path: Path) -> None:
    """A folder called arena must not be taken for the package: set up with launch/test.sh if this fails."""
    if where == "beside a clone called arena":
        (tmp_path / "arena" / "launch").mkdir(parents=True)
    ran = subprocess.run(
        [sys.executable, "-c", "import arena.envs, arena.launch, arena.policies; print(arena.envs.__file__)"],
        cwd=ROOT if where == "checkout" else tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()) == ROOT / "envs" / "__init__.py"


def test_the_console_script_starts() -> None:
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="arena")
    ran = subprocess.run(
        [Path(sys.executable).parent / "arena", "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert script.value == "arena.launch:main"
    assert ran.returncode == 0, ran.stderr
    assert "--dry-run" in ran.stdout


def test_every_requirement_is_pinned_to_a_version_that_satisfies_it(metadata: Message) -> None:
    pinned = pins()
    for requirement, _ in requirements(metadata):
        pin = pinned.get(canonical(requirement.name))
        assert pin is not None, f"constraints.txt has no line for {requirement}"
        (version,) = pin.specifier
        assert version.operator == "==", f"{pin} pins no exact version"
        assert requirement.specifier.contains(version.version), f"{pin} does not satisfy {requirement}"


def test_the_suite_runs_on_the_pinned_versions() -> None:
    """Figures and fixes are measured on what is installed here; a fresh clone gets what is pinned."""
    pinned = pins()
    installed = {canonical(found.name): found.version for found in importlib.metadata.distributions()}
    differing = {
        name: f"pinned {pinned[name].specifier}, installed {version}"
        for name, version in installed.items()
        # A build may add to the version what it was built for: 2.13.0+cpu.
        if name in pinned and not pinned[name].specifier.contains(version.split("+")[0])
    }
    assert not differing


def test_pygame_is_installed_once(metadata: Message) -> None:
    """pygame and pygame-ce are two packages with one module: the second to come breaks the first."""
    assert "pygame" not in {canonical(requirement.name) for requirement, _ in requirements(metadata)}
    assert "pygame" not in pins()


def test_what_the_package_says_of_itself_is_said_alike_everywhere(metadata: Message) -> None:
    """A badge, an error text or the citation would name another package, version or Python."""
    import arena

    assert metadata["Name"] == "arena-mpi"
    assert f"pip install '{metadata['Name']}[" in (ROOT / "arena/common/registry.py").read_text("utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert metadata["Version"] == citation["version"] == arena.__version__
    assert metadata["License"] == citation["license"]
    versions = [line.rpartition(" ")[2] for line in metadata.get_all("Classifier") or [] if "Python :: 3." in line]
    badges = re.findall(r"^\[!\[(.+?)\]\(", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert badges[0] == f"Python {versions[0]} to {versions[-1]}"
    assert badges[1] == "MPI: Open MPI, MPICH, Intel MPI"  # those that tests/mpi/test_other_mpis.py starts
    assert badges[2] == f"License: {citation['license']}"


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://example.org/group/arena.git", "https://example.org/group/arena"),
        ("git@example.org:group/arena.git", "https://example.org/group/arena"),
        ("ssh://git@example.org/group/arena", "https://example.org/group/arena"),
        ("/home/somebody/arena", None),
    ],
)
def test_addresses_are_those_of_the_clone(origin: str, address: str | None, tmp_path: Path) -> None:
    """The package index would show no repository, or a folder of whoever built the package."""
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "arena" / "common").mkdir(parents=True)
    shutil.copy(ROOT / "arena" / "common" / "package.py", tmp_path / "arena" / "common")
    (tmp_path / "envs").mkdir()
    (tmp_path / "policies").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", origin], cwd=tmp_path, check=True)
    asked = [sys.executable, "setup.py", "-q", "--url", "--long-description"]
    said = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    url, _, page = said.partition("\n")
    assert url == (address or "")
    assert f"]({address}/blob/HEAD/docs/tutorial.md)" in page if address else "](docs/tutorial.md)" in page
    assert f"]({address}/raw/HEAD/docs/pictures/page_league.png)" in page if address else "](docs/pictures/" in page


def test_extras_that_errors_suggest_exist_and_bring_the_package(metadata: Message) -> None:
    brought: dict[str, set[str]] = {}
    for text in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        for extra in re.findall(r'extra == "(.+?)"', str(requirement.marker or "")):
            brought.setdefault(extra, set()).add(canonical(requirement.name))
    provided = importlib.metadata.packages_distributions()
    for package, extra in registry.EXTRAS.items():
        assert extra in brought, f"registry.EXTRAS suggests arena-mpi[{extra}], which setup.py does not have"
        names = {canonical(name) for name in provided.get(package, [package])}
        assert names & brought[extra], f"arena-mpi[{extra}] does not install {package}"


def test_whatever_is_imported_is_declared(metadata: Message) -> None:
    """Everything that modules import is a requirement of the core, or has an extra that errors can suggest."""
    core = {canonical(requirement.name) for requirement, is_core in requirements(metadata) if is_core}
    provided = importlib.metadata.packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {package}"
        for path, _ in sources()
        for package in imported_packages(path)
        if package not in registry.EXTRAS and not core & {canonical(name) for name in provided.get(package, [package])}
    }
    assert not undeclared


def imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere, less Python's own and ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"arena"}
