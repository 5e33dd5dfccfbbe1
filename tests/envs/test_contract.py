"""Every kind of environment keeps the one contract; were a rule broken, the engine would learn from wrong data."""

from pathlib import Path

import numpy as np
import pytest

from arena.envs.contract import EnvironmentContract
from arena.envs.factory import make_environment
from arena.envs.interface import Environment, Timestep

HERE = Path(__file__).parents[1] / "environments"
ATARI = [
    ("AtariPreprocessing", {"frame_skip": 4}),
    ("FrameStackObservation", {"stack_size": 4}),
]


class TestCartPole(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment("gymnasium:CartPole-v1")


class TestAcrobot(EnvironmentContract):
    steps = 520  # to its time limit

    def make_environment(self) -> Environment:
        return make_environment("gymnasium:Acrobot-v1", render=True)


class TestPendulum(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment("gymnasium:Pendulum-v1")


class TestPong(EnvironmentContract):
    steps = 60

    def make_environment(self) -> Environment:
        return make_environment("gymnasium:ALE/Pong-v5", {"frameskip": 1}, ATARI)


class TestNestedSpaces(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/nested.py:Nested")


@pytest.mark.parametrize("how", ["method", "info", "observation"])
class TestMaskedGymnasium(EnvironmentContract):
    steps = 30

    @pytest.fixture(autouse=True)
    def _choose(self, how: str) -> None:
        self.how = how

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/nested.py:Masked", {"how": self.how}, render=True)


class TestSimpleTag(EnvironmentContract):
    steps = 60

    def make_environment(self) -> Environment:
        return make_environment("pettingzoo:mpe2.simple_tag_v3", {"max_cycles": 25})


class TestRockPaperScissors(EnvironmentContract):
    steps = 40

    def make_environment(self) -> Environment:
        return make_environment("pettingzoo:classic.rps_v2")


class TestAgentsThatComeAndGo(EnvironmentContract):
    steps = 30

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/parallel.py:Shift", {"masks": True})


class TestConnectFour(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment("pettingzoo:pettingzoo.classic.connect_four_v3", render=True)


class TestTicTacToe(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment("pettingzoo:classic/tictactoe-v3")


class TestTurnsOfAParallelGame(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment("pettingzoo-aec:mpe2.simple_tag_v3", {"max_cycles": 10})


class TestTolls(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/turns.py:Tolls")


class TestTollsWithoutFarewell(EnvironmentContract):
    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/turns.py:TollsWithoutFarewell")


@pytest.mark.parametrize("infos", ["one", "each"])
class TestList(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _choose(self, infos: str) -> None:
        self.infos = infos

    def make_environment(self) -> Environment:
        return make_environment(f"{HERE}/lists.py:Line", {"infos": self.infos})


@pytest.mark.parametrize(
    ("game", "settings"),
    [
        ("kuhn_poker", {"players": 3}),  # two who have folded wait for the third
        ("leduc_poker", {}),
        ("matrix_brps", {}),
        ("goofspiel", {"num_cards": 4}),  # all at once, with chance between
        ("oshi_zumo", {"horizon": 20}),  # rewards on the way
        ("tic_tac_toe", {}),  # nothing is hidden
        ("catch", {}),  # one player
    ],
)
class TestOpenSpiel(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _choose(self, game: str, settings: dict) -> None:
        self.game, self.settings = game, settings

    def make_environment(self) -> Environment:
        return make_environment(f"openspiel:{self.game}", self.settings)


@pytest.mark.parametrize(
    "settings", [{}, {"payoffs": [[3, -2], [-2, 1]], "rounds": 3}, {"payoffs": [[[1, 2, 3]], [[4, 5, 6]]]}]
)
class TestMatrixGame(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _choose(self, settings: dict) -> None:
        self.settings = settings

    def make_environment(self) -> Environment:
        return make_environment("matrix_game", self.settings)


class Faulty:
    """Plays CartPole and breaks one rule, chosen by name."""

    def __init__(self, fault: str) -> None:
        self.inner = make_environment("gymnasium:CartPole-v1")
        self.entities, self.turn_based = self.inner.entities, self.inner.turn_based
        self.fault = fault
        self.previous: np.ndarray = np.zeros(1)

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        timestep = self.inner.reset(None if self.fault == "seed" else seed, options)
        return timestep._replace(rewards=(1.0,)) if self.fault == "paid at reset" else timestep

    def step(self, actions: list) -> Timestep:
        timestep = self.inner.step(actions)
        if self.fault == "acts when over" and timestep.over:
            return timestep._replace(acting=(True,))
        if self.fault == "merged" and timestep.over:
            return timestep._replace(terminated=(False,), truncated=(False,))
        if self.fault == "reward type":
            return timestep._replace(rewards=(np.float32(1.0),))
        if self.fault == "outside":
            return timestep._replace(observations=(np.zeros(3, np.float32),))
        if self.fault == "skips":
            return timestep._replace(acting=(False,))
        if self.fault == "mask":
            return timestep._replace(action_masks=(np.ones(2, np.int8),))
        return timestep

    def render(self) -> None:
        return None

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize(
    ("fault", "test", "text"),
    [
        ("paid at reset", "test_reset_starts_an_episode", "rewards at reset"),
        ("seed", "test_same_seed_and_actions_give_the_same_episode", "step 0"),
        ("acts when over", "test_every_step_keeps_the_contract", "acts in an episode that is over"),
        ("merged", "test_every_step_keeps_the_contract", "neither terminated nor truncated"),
        ("reward type", "test_every_step_keeps_the_contract", "reward"),
        ("outside", "test_every_step_keeps_the_contract", "is not in"),
        ("skips", "test_every_step_keeps_the_contract", "nobody acts"),
        ("mask", "test_every_step_keeps_the_contract", "mask_size is 0"),
    ],
)
def test_the_contract_catches_an_environment_that_breaks_it(fault: str, test: str, text: str) -> None:
    class Broken(EnvironmentContract):
        def make_environment(self) -> Environment:
            return Faulty(fault)

    with pytest.raises(AssertionError, match=text):
        getattr(Broken(), test)()


def test_the_contract_catches_an_environment_that_keeps_its_actions() -> None:
    class Keeper:
        """Pendulum that applies the torque of the step before."""

        def __init__(self) -> None:
            self.inner = make_environment("gymnasium:Pendulum-v1")
            self.entities, self.turn_based = self.inner.entities, self.inner.turn_based
            self.kept = np.zeros(1, np.float32)

        def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
            return self.inner.reset(seed, options)

        def step(self, actions: list) -> Timestep:
            timestep = self.inner.step([self.kept])
            self.kept = actions[0]
            return timestep

        def render(self) -> None:
            return None

        def close(self) -> None:
            self.inner.close()

    class Broken(EnvironmentContract):
        def make_environment(self) -> Environment:
            return Keeper()

    with pytest.raises(AssertionError, match="earlier actions were overwritten"):
        Broken().test_actions_are_not_kept()
