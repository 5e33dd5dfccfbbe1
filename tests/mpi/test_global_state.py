"""The global state on its way to the critics of a team, over every transport."""

import numpy as np
import pytest

from arena.launch import mpirun

from .launching import PLAYERS, player, run_arena, run_mpirun, succeed, write_config

pytestmark = pytest.mark.rooms("environment", "worker", "protocol", "policies")

COPIES, TEAM, OBSERVED = 2, 3, 18


def team(place, seats, manager):
    return {
        "seed": 5,
        "steps": COPIES * TEAM * 64,
        "env": {"use": "pettingzoo:mpe2.simple_spread_v3", "num_envs": COPIES, "batches": 1, "manager": manager},
        "policies": {
            "team": {
                "use": player("central:Stores"),
                "deterministic_actions": True,
                "settings": {"critic": "central", "horizon": 64, "place": str(place)},
            }
        },
        "matches": [{"seats": seats}],
    }


def stored(place):
    """Return observations, states ``[T + 1, copies, ...]`` and value targets ``[T, copies]`` of each agent."""
    found = {}
    for path in place.glob("*.npz"):
        arrays = np.load(path)
        lanes = arrays["targets"].shape[1]
        for lane in range(lanes):
            copy, own = divmod(lane, lanes // COPIES)
            seen, states = arrays["observations"][:, lane], arrays["states"][:, lane]
            # the state of simple_spread is what its agents observe, side by side
            parts = [states[:, OBSERVED * i : OBSERVED * (i + 1)].tobytes() for i in range(TEAM)]
            agent = parts.index(seen.tobytes())  # bit for bit
            assert lanes == COPIES or agent == own
            found[agent, copy] = states, arrays["targets"][:, lane]
    assert len(found) == TEAM * COPIES
    return found


@pytest.mark.tier("default")
def test_three_seats_on_three_ranks_have_the_states_and_targets_of_one_seat(tmp_path):
    """No cheaper test has several ranks: five here, with copies in subprocesses, and three without shared memory."""
    apart, together = tmp_path / "apart", tmp_path / "together"
    for place in (apart, together):
        place.mkdir()
    succeed(run_arena(apart, team(apart, ["team"] * TEAM, "subprocess")))
    config = write_config(together, team(together, [["team"] * TEAM], "serial"))
    path = mpirun.find_mpirun()
    *line, _, _ = mpirun.command(path, 3, [])  # the last words are -m and the arena's own module
    line += [str(PLAYERS / "without_shared_memory.py"), str(config)]
    done = run_mpirun(line, env=mpirun.environment(path), timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    expected = stored(together)
    for place, (states, targets) in stored(apart).items():
        np.testing.assert_array_equal(states, expected[place][0])
        np.testing.assert_allclose(targets, expected[place][1], rtol=1e-6, atol=1e-6)
        assert np.abs(targets).max() > 0.1
