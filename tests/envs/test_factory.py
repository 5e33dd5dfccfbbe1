"""Every way of naming an environment works, and the message about a wrong name shows the right one."""

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml

from arena.common.errors import ConfigError
from arena.envs.adapters.gymnasium import GymnasiumEnvironment
from arena.envs.adapters.list_environment import ListEnvironment
from arena.envs.adapters.openspiel import OpenSpielEnvironment
from arena.envs.adapters.pettingzoo_aec import AECEnvironment
from arena.envs.adapters.pettingzoo_parallel import ParallelEnvironment
from arena.envs.factory import make_environment
from arena.envs.matrix_game import MatrixGame

HERE = Path(__file__).parents[1] / "environments"
NESTED = f"{HERE}/nested.py"

# What `package.module:make_env` may name, beside classes: any function that returns an environment.


def make_contract() -> object:
    """Return something that keeps the arena's own contract."""
    return make_environment("gymnasium:CartPole-v1")


def make_vector() -> object:
    """Return a vector environment, which is not accepted."""
    return gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")


NOT_A_FUNCTION = 3


@pytest.mark.parametrize(
    ("use", "settings", "kind"),
    [
        ("gymnasium:CartPole-v1", {}, GymnasiumEnvironment),
        ("gymnasium:ALE/Pong-v5", {"obs_type": "ram"}, GymnasiumEnvironment),
        ("gymnasium.envs.classic_control:CartPoleEnv", {}, GymnasiumEnvironment),
        (f"{NESTED}:Nested", {"length": 3}, GymnasiumEnvironment),
        ("pettingzoo:mpe2.simple_tag_v3", {"num_good": 2}, ParallelEnvironment),
        ("pettingzoo:classic.rps_v2", {}, ParallelEnvironment),
        ("pettingzoo-aec:classic.rps_v2", {}, AECEnvironment),
        ("pettingzoo:pettingzoo.classic.connect_four_v3", {}, AECEnvironment),
        ("pettingzoo:classic.tictactoe_v3", {}, AECEnvironment),
        ("pettingzoo.classic.connect_four_v3:env", {}, AECEnvironment),
        ("openspiel:kuhn_poker", {"players": 3}, OpenSpielEnvironment),
        ("matrix_game", {"payoffs": "matching_pennies"}, MatrixGame),
        (f"{HERE}/parallel.py:Shift", {}, ParallelEnvironment),
        (f"{HERE}/turns.py:Tolls", {}, AECEnvironment),
        (f"{HERE}/lists.py:Line", {}, ListEnvironment),
        (f"{__file__}:make_contract", {}, GymnasiumEnvironment),
    ],
)
def test_whatever_is_named_is_adapted_by_what_it_is(use: str, settings: dict, kind: type) -> None:
    environment = make_environment(use, settings)
    assert type(environment) is kind
    environment.close()


@pytest.mark.parametrize(
    ("use", "text"),
    [
        ("CartPole-v1", r"unknown environment 'CartPole-v1' \(did you mean 'gymnasium:CartPole-v1'\?\)"),
        (
            "touchdwn",
            r"did you mean 'touchdown'\?\); expected a registered name \(ecr, gateway, matrix_game, touchdown",
        ),
        ("gymnasium:CartPol-v1", r"did you mean 'gymnasium:CartPole-v1'\?"),
        ("gymnasium:Pong-v5", r"did you mean 'gymnasium:ALE/Pong-v5'\?"),
        ("gymnasium:ALE/Pnog-v5", r"did you mean 'gymnasium:ALE/Pong-v5'\?"),
        ("gymnasium:CartPole-v9", r"did you mean 'gymnasium:CartPole-v1'\?"),
        ("gymnasium:", "Malformed environment ID"),
        ("pettingzoo:classic.tictacto_v3", r"did you mean 'classic.tictactoe_v3'\?"),
        ("pettingzoo:mpe2.simple_tga_v3", r"did you mean 'mpe2.simple_tag_v3'\?"),
        ("pettingzoo:mpe.simple_tag_v3", "pip install mpe2"),
        ("pettingzoo:", "expected a module such as"),
        ("pettingzoo:gymnasium", "has no parallel_env or env"),
        ("pettingzoo-aec:json", "has no env; expected"),
        ("openspiel:khun_poker", r"did you mean 'openspiel:kuhn_poker'\?\); expected one of OpenSpiel's games"),
        ("openspiel:coin_game", "coin_game has no tensor to observe"),
        ("openspiel:mfg_garnet", "a mean field game"),
        ("openspiel:tarok", "samples its chance events itself"),
        (f"{NESTED}:Nestd", r"has no 'Nestd' \(did you mean 'Nested'\?\)"),
        (f"{NESTED}:Zebra", r"has no 'Zebra'; it has Nested, "),
        (f"{HERE}/absent.py:Nested", "there is no file"),
        (f"{__file__}:NOT_A_FUNCTION", "expected a function or class that makes an environment, found 3"),
        (f"{NESTED}:needs_absent_package", "pip install package_that_nobody_installs"),
        ("collections:OrderedDict", "expected a PettingZoo.*a gymnasium.Env.*found collections.OrderedDict"),
        (f"{__file__}:make_vector", "give one environment and set num_envs"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(use: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_environment(use)


def test_an_id_that_an_installed_package_registers_is_named_with_it(tmp_path, monkeypatch) -> None:
    package, about = tmp_path / "mazes", tmp_path / "mazes-1.0.dist-info"
    package.mkdir(), about.mkdir()
    (package / "__init__.py").write_text(
        "from gymnasium import register\nregister(id='Maze-Large-v0', entry_point=None)\n"
    )
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mazes\nVersion: 1.0\nRequires-Dist: gymnasium>=1.0\n")
    (about / "RECORD").write_text("mazes/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"the package mazes registers it: write 'gymnasium:mazes:Maze-Large-v0'"):
        make_environment("gymnasium:Maze-Large-v0")


class Talks(gymnasium.Env):
    """Says something beside what it shows."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 1, (2,)),
            "text": gymnasium.spaces.Text(8),
            "way": gymnasium.spaces.Discrete(4),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)


def test_a_placeholder_without_quotes_is_named_where_a_constructor_fails() -> None:
    simulator = f"{Path(__file__).parents[1]}/environments/simulator.py:Simulator"
    with pytest.raises(
        ConfigError, match=r"mapping \{prot: null\}: .* in quotes, \"\{prot\}\" \(did you mean 'port'\?\)"
    ):
        make_environment(simulator, {"port": {"prot": None}})


def test_the_line_that_leaves_out_a_text_is_written_out() -> None:
    with pytest.raises(ConfigError, match=r"found Text at \['text'\].*leave out 'text': (.*)") as caught:
        make_environment(f"{__file__}:Talks")
    line = str(caught.value).partition("leave out 'text': env.observe: ")[2]
    environment = make_environment(f"{__file__}:Talks", observe=yaml.safe_load(line))
    assert list(environment.entities[0].observation) == ["image", "way"]


@pytest.mark.parametrize(
    ("use", "settings", "text"),
    [
        (
            "gymnasium:CartPole-v1",
            {"gravity": 1},
            r"its settings \{'gravity': 1\}: .*unexpected keyword argument 'gravity'; it takes sutton_barto_reward",
        ),
        ("gymnasium:Pendulum-v1", {"g": "strong", "max_episode_steps": -3}, "refuses its settings"),
        (
            "pettingzoo:classic.rps_v2",
            {"num": 5},
            "unexpected keyword argument 'num'; it takes num_actions, max_cycles",
        ),
        ("pettingzoo:classic.rps_v2", {"num_actions": 4}, "must be an odd number; it takes"),
        (f"{NESTED}:Nested", {"lengths": 4}, "unexpected keyword argument 'lengths'; it takes length"),
        (
            "openspiel:kuhn_poker",
            {"playerz": 3},
            r"no parameter 'playerz' \(did you mean 'players'\?\); it takes players",
        ),
        ("openspiel:kuhn_poker", {"players": "three"}, "refuses its settings .*Wrong type"),
        ("matrix_game", {"payoff": [[1]]}, "unexpected keyword argument 'payoff'; it takes payoffs, rounds"),
        (f"{NESTED}:broken", {}, "missing 1 required positional argument: 'size'; it takes size"),
    ],
)
def test_settings_that_are_refused_are_answered_with_those_that_are_taken(use: str, settings: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_environment(use, settings)


def test_a_fault_in_the_code_of_an_environment_is_not_blamed_on_the_settings() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        make_environment(f"{NESTED}:broken", {"size": 3})


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Hide these packages from Python, as if they were not installed."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name in packages:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])


def test_a_missing_package_names_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "mpe2", "ale_py", "pyspiel")
    with pytest.raises(ConfigError, match=r"needs the package 'mpe2'.*pip install 'arena-mpi\[mpe\]'"):
        make_environment("pettingzoo:mpe2.simple_tag_v3")
    with pytest.raises(ConfigError, match=r"needs the package 'pyspiel'.*pip install 'arena-mpi\[openspiel\]'"):
        make_environment("openspiel:kuhn_poker")
    with pytest.raises(ConfigError, match=r"needs the package 'ale_py'.*pip install 'arena-mpi\[atari\]'"):
        make_environment("gymnasium:ALE/Pong-v5")


def test_a_missing_package_behind_gymnasium_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "cv2")
    with pytest.raises(ConfigError, match=r"'AtariPreprocessing' needs the package 'cv2'.*arena-mpi\[atari\]"):
        make_environment("gymnasium:ALE/Pong-v5", {"frameskip": 1}, [("AtariPreprocessing", {})])


def test_settings_are_copied_for_each_environment() -> None:
    settings: dict = {"obs_type": "ram"}
    make_environment("gymnasium:ALE/Pong-v5", settings)
    assert settings == {"obs_type": "ram"}


# Wrappers


def test_frames_of_pong_are_preprocessed_and_stacked() -> None:
    wrappers = [("AtariPreprocessing", {}), ("gymnasium.wrappers.FrameStackObservation", {"stack_size": 4})]
    environment = make_environment("gymnasium:ALE/Pong-v5", {"frameskip": 1}, wrappers)
    observation = environment.reset(seed=1).observations[0]
    assert observation.shape == environment.entities[0].observation.shape == (4, 84, 84)
    assert observation.dtype == np.uint8 and len(np.unique(observation)) > 2


def test_grey_scale_and_resize_by_name() -> None:
    wrappers = [("GrayscaleObservation", {"keep_dim": True}), ("ResizeObservation", {"shape": [42, 42]})]
    environment = make_environment("gymnasium:ALE/Pong-v5", {}, wrappers)
    assert environment.reset(seed=1).observations[0].shape == (42, 42, 1)


def test_wrappers_of_ones_own_go_around_in_order() -> None:
    halves = [(f"{NESTED}:Halve", {}), (f"{NESTED}:Halve", {"factor": 0.1})]
    environment = make_environment("gymnasium:CartPole-v1", {}, halves)
    environment.reset(seed=1)
    assert environment.step([np.int64(0)]).rewards[0] == pytest.approx(0.05)


def test_pettingzoo_environments_take_functions_as_wrappers() -> None:
    environment = make_environment(f"{HERE}/parallel.py:Shift", {}, [(f"{HERE}/parallel.py:wrap", {"factor": 10.0})])
    environment.reset()
    assert list(environment.step([np.int64(1)] * 4).rewards) == [20.0, 0.0, 20.0, 20.0]


def test_pettingzoos_own_wrappers_go_around_its_environments() -> None:
    clip = [("pettingzoo.utils.wrappers:ClipOutOfBoundsWrapper", {})]
    environment = make_environment("pettingzoo-aec:mpe2.simple_v3", {"continuous_actions": True}, clip)
    environment.reset(seed=1)
    assert environment.step([np.full(5, 9.0, np.float32)]).over is False


@pytest.mark.parametrize(
    ("use", "wrapper", "settings", "text"),
    [
        ("gymnasium:CartPole-v1", "FrameStack", {}, "unknown wrapper 'FrameStack'.*renamed.*FrameStackObservation"),
        ("gymnasium:CartPole-v1", "ClipRewrd", {}, r"did you mean 'ClipReward'\?"),
        ("gymnasium:CartPole-v1", "vector", {}, "'vector' is not a wrapper"),
        ("gymnasium:CartPole-v1", "FrameStackObservation", {}, "missing 1 required.*it takes env, stack_size"),
        ("gymnasium:CartPole-v1", "FrameStackObservation", {"stack_size": 0}, "greater than zero"),
        ("gymnasium:ALE/Pong-v5", "AtariPreprocessing", {}, "Disable frame-skipping in the original env"),
        (
            "gymnasium:CartPole-v1",
            f"{NESTED}:Halve",
            {"facto": 2},
            "unexpected keyword argument 'facto'; it takes env, factor",
        ),
        ("gymnasium:CartPole-v1", "builtins:print", {}, "returned None"),
        (
            "pettingzoo:classic.connect_four_v3",
            "FrameStackObservation",
            {"stack_size": 4},
            "made for Gymnasium environments.*of type OrderEnforcingWrapper; wrap it with package.module:name",
        ),
        (f"{HERE}/lists.py:Line", "ClipReward", {}, "made for Gymnasium environments, the environment is of type Line"),
        (
            "pettingzoo:mpe2.simple_tag_v3",
            "pettingzoo.utils.wrappers:ClipOutOfBoundsWrapper",
            {},
            "made for PettingZoo AEC environments",
        ),
    ],
)
def test_a_wrapper_that_does_not_fit_is_refused(use: str, wrapper: str, settings: dict, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_environment(use, {}, [(wrapper, settings)])


def test_environment_processes_need_neither_torch_nor_packages_of_other_environments() -> None:
    code = (
        "import sys; from arena.envs.factory import make_environment; from arena.env_manager import create_env_manager;"
        "create_env_manager('serial', lambda i: make_environment('gymnasium:CartPole-v1'), 2).reset();"
        "bad = {'torch', 'mpi4py', 'pettingzoo', 'pygame', 'ale_py'} & set(sys.modules);"
        "sys.exit(f'{bad} loaded' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
