"""If these fail, copies of a simulator are constructed alike, and collide."""

from pathlib import Path

import pytest

from arena.common.copies.placeholders import CopyPlace
from arena.env_manager import ManagerSettings, create_env_manager
from arena.env_manager.source import EnvironmentSource

SIMULATOR = f"{Path(__file__).parents[1]}/environments/simulator.py"


@pytest.mark.parametrize("kind", ["serial", "subprocess"])
def test_copies_have_ports_of_their_own_also_after_a_restart(kind: str) -> None:
    source = EnvironmentSource(f"{SIMULATOR}:Simulator", {"port": "{port}"}, place=CopyPlace(index=4, match=1))
    manager = create_env_manager(kind, source, 4, ManagerSettings())
    try:
        manager.restart(2)
        ports = {float(timestep.observations[0][0]) for timestep in manager.reset()}
        assert len(ports) == 4
    finally:
        manager.close()


@pytest.mark.parametrize("kind", ["serial", "subprocess"])
def test_what_the_file_states_reaches_every_copy(kind: str) -> None:
    manager = create_env_manager(kind, EnvironmentSource("gymnasium:Taxi-v4", {}, action_mask="info"), 2)
    try:
        assert manager.entities[0].mask_size == 6
        assert all(0 < timestep.action_masks[0].sum() < 6 for timestep in manager.reset())
    finally:
        manager.close()


def test_constructors_of_rllib_s_form_get_a_context() -> None:
    settings = {"env_config": {"port": "{port}", "level": "{index}"}}
    source = EnvironmentSource(f"{SIMULATOR}:ByContext", settings, place=CopyPlace(index=4, match=1))
    manager = create_env_manager("serial", source, 2, ManagerSettings())
    try:
        assert manager.get_attr("env") is not None
        assert [each.env.numbers for each in manager.environments] == [(2, 0, 4), (2, 1, 5)]
    finally:
        manager.close()


def test_a_port_that_all_copies_would_take_is_an_error_with_the_placeholder() -> None:
    source = EnvironmentSource(f"{SIMULATOR}:Simulator", {"port": 27_005})
    with pytest.raises(OSError, match=r"Address already in use \(each copy .*: env\.settings: \{port: '\{port\}'\}\)"):
        create_env_manager("serial", source, 2, ManagerSettings())
