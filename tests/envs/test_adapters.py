"""An entity gets through an adapter what the environment's own library would have returned."""

from collections import defaultdict
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from arena.common.errors import ConfigError
from arena.envs.contract import play
from arena.envs.factory import make_environment

HERE = Path(__file__).parents[1] / "environments"
NESTED, LISTS, PARALLEL, TURNS = (HERE / f"{name}.py" for name in ("nested", "lists", "parallel", "turns"))


# Gymnasium


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasium_numbers_arrive_unchanged(name: str) -> None:
    environment = make_environment(f"gymnasium:{name}")
    native = gymnasium.make(name)
    resets = 0
    for actions, timestep in play(environment, 250):
        if actions is None:
            resets += 1
            # Only the first reset of the play is compared: later seeds are the play's own affair.
            if resets > 1:
                break
            observation, info = native.reset(seed=7)
            expected = (observation, 0.0, False, False, info)
        else:
            expected = native.step(actions[0])
        np.testing.assert_array_equal(timestep.observations[0], expected[0])
        assert timestep.rewards[0] == expected[1]
        assert (timestep.terminated[0], timestep.truncated[0]) == expected[2:4]
        assert timestep.infos[0] == expected[4]
        assert timestep.over == (expected[2] or expected[3])


def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    environment = make_environment("gymnasium:Pendulum-v1", {"max_episode_steps": 3})
    environment.reset(seed=1)
    ends = [environment.step([np.zeros(1, np.float32)]) for _ in range(3)]
    assert [(t.terminated[0], t.truncated[0], t.over) for t in ends] == [(False, False, False)] * 2 + [
        (False, True, True)
    ]


def test_an_end_and_a_limit_in_the_same_step_are_both_told() -> None:
    environment = make_environment(f"{NESTED}:Nested", {"length": 1})
    environment.reset(seed=1)
    gear = (np.int64(1), np.zeros(2, np.int64))
    action = {"keys": np.ones(3, np.int8), "wheel": np.zeros(1, np.float32), "gear": gear}
    timestep = environment.step([action])
    assert timestep.terminated[0] and timestep.truncated[0]


def test_observations_come_in_the_dtype_of_their_space() -> None:
    environment = make_environment(f"{NESTED}:Nested")
    observation = environment.reset(seed=3).observations[0]
    assert observation["camera"].dtype == np.uint8
    assert observation["inner"][1]["wheel"].dtype == np.float64
    assert environment.entities[0].observation.contains(observation)


def test_reset_options_arrive() -> None:
    assert make_environment(f"{NESTED}:Nested").reset(1, {"level": 3}).infos[0] == {"options": {"level": 3}}


def test_an_observation_of_another_shape_than_its_space_is_refused_at_the_first_reset() -> None:
    environment = make_environment(f"{NESTED}:Liar")
    with pytest.raises(ConfigError, match=r"'entity_0'.*expected Box\(0.0, 1.0, \(4,\), float32\).*shape \(1,\)"):
        environment.reset()


@pytest.mark.parametrize(("how", "size"), [("method", 5), ("info", 3), ("observation", 3)])
def test_action_masks_follow_the_game(how: str, size: int) -> None:
    environment = make_environment(f"{NESTED}:Masked", {"how": how})
    assert environment.entities[0].mask_size == size
    timestep = environment.reset()
    for step in range(6):
        expected = [(np.arange(3) == step % 3)]
        if how == "method":
            expected.insert(0, np.arange(2) == step % 2)
        np.testing.assert_array_equal(timestep.action_masks[0], np.concatenate(expected))
        action = np.array([step % 2, step % 3]) if how == "method" else np.int64(5 + step % 3)
        timestep = environment.step([action])


def test_a_mask_in_a_dict_observation_is_taken_out_of_it() -> None:
    environment = make_environment(f"{NESTED}:Masked", {"how": "observation"})
    assert (
        list(environment.reset().observations[0])
        == ["clock", "observation"]
        == list(environment.entities[0].observation)
    )


# PettingZoo AEC


def by_hand(env: object, seed: int, rng: np.random.Generator) -> tuple[dict, list]:
    """Play with PettingZoo's own loop; return the results of each agent, turn by turn, and the moves."""
    told, moves = defaultdict(list), []
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        board = observation["observation"] if isinstance(observation, dict) else observation
        told[agent].append((board.copy(), reward, terminated, truncated))
        if terminated or truncated:
            env.step(None)
            continue
        legal = np.flatnonzero(observation["action_mask"]) if isinstance(observation, dict) else np.arange(3)
        moves.append(int(rng.choice(legal)))
        env.step(moves[-1])
    return told, moves


def through_adapter(environment: object, seed: int, moves: list) -> dict:
    """Make the same moves; return the results of each entity whenever it acts or is done."""
    told = defaultdict(list)
    timestep = environment.reset(seed=seed)
    moves = iter(moves)
    while True:
        for i, entity in enumerate(environment.entities):
            if timestep.acting[i] or timestep.terminated[i] or timestep.truncated[i]:
                told[entity.name].append(
                    (timestep.observations[i], timestep.rewards[i], timestep.terminated[i], timestep.truncated[i])
                )
        if timestep.over:
            return told
        action = next(moves)
        timestep = environment.step([np.int64(action if acts else 0) for acts in timestep.acting])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "use", ["pettingzoo:classic.connect_four_v3", "pettingzoo:classic.tictactoe_v3", f"{TURNS}:Tolls"]
)
def test_turn_by_turn_an_entity_is_told_what_pettingzoo_tells_its_agent(use: str, seed: int) -> None:
    environment = make_environment(use)
    expected, moves = by_hand(make_environment(use).env, seed, np.random.default_rng(seed))
    found = through_adapter(environment, seed, moves)
    assert set(found) == set(expected)
    for agent, turns in expected.items():
        assert [turn[1:] for turn in found[agent]] == [turn[1:] for turn in turns], agent
        for mine, theirs in zip(found[agent], turns, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])


def test_rewards_between_turns_are_collected_and_paid_at_the_next_turn_or_the_end() -> None:
    environment = make_environment(f"{TURNS}:Tolls")
    assert environment.turn_based
    timestep = environment.reset()
    seen = []
    for _ in range(12):
        timestep = environment.step([np.int64(2)] * 3)
        seen.append((timestep.rewards, list(timestep.terminated), list(timestep.truncated), timestep.acting))
    # Until everybody had a turn, each is owed the quarters of those who moved before it.
    assert [s[0] for s in seen[:3]] == [[0, 0.25, 0], [0, 0, 0.5], [2.5, 0, 0]]
    # At its second turn b gets what its first move brought until then; that move puts it out, and is paid at once.
    assert seen[3][0] == [0, 2.5, 0]
    assert seen[4][0] == [0, 2.0, 2.5] and seen[4][1] == [False, True, False] and seen[4][3] == [False, False, True]
    # The last move ends it for a and c together; nobody is owed anything any more.
    assert seen[11][2] == [True, False, True] and seen[11][3] == [False] * 3 and timestep.over
    total = sum(sum(s[0]) for s in seen)
    # Twelve moves pay 2; the first five pay two others, the other seven pay one.
    assert total == 12 * 2 + 5 * 0.5 + 7 * 0.25


def test_an_environment_that_empties_its_agents_loses_no_reward() -> None:
    def total(name: str) -> tuple[float, list]:
        environment = make_environment(f"{TURNS}:{name}")
        environment.reset()
        steps = [environment.step([np.int64(2)] * 3) for _ in range(12)]
        assert steps[-1].over
        return sum(sum(t.rewards) for t in steps), list(steps[-1].truncated)

    assert total("TollsWithoutFarewell") == total("Tolls")


def test_board_games_state_their_legal_moves_as_a_mask_of_whoever_acts() -> None:
    environment = make_environment("pettingzoo:classic.connect_four_v3")
    assert [entity.mask_size for entity in environment.entities] == [7, 7]
    assert environment.entities[0].observation.shape == (6, 7, 2)
    timestep = environment.reset()
    for _ in range(6):  # fill column 3
        timestep = environment.step([np.int64(3), np.int64(3)])
    actor = timestep.acting.index(True)
    np.testing.assert_array_equal(timestep.action_masks[actor], [1, 1, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(timestep.action_masks[1 - actor], np.ones(7))


def test_a_win_is_paid_to_both_in_the_step_in_which_it_happens() -> None:
    environment = make_environment("pettingzoo:classic.connect_four_v3")
    environment.reset()
    for column in (0, 1, 0, 1, 0, 1):
        timestep = environment.step([np.int64(column)] * 2)
        assert not timestep.over
    timestep = environment.step([np.int64(0)] * 2)
    assert timestep.over and timestep.rewards == [1.0, -1.0] and list(timestep.terminated) == [True, True]
    assert not any("outcome" in info for info in timestep.infos), "an outcome is the environment's to say"


def test_an_illegal_move_ends_the_game_against_whoever_made_it() -> None:
    environment = make_environment("pettingzoo:classic.tictactoe_v3")
    environment.reset()
    environment.step([np.int64(4)] * 2)
    timestep = environment.step([np.int64(4)] * 2)
    assert timestep.over and timestep.rewards == [0.0, -1.0]


def test_aec_can_be_forced_where_there_is_a_parallel_form() -> None:
    parallel = make_environment("pettingzoo:classic.rps_v2")
    turns = make_environment("pettingzoo-aec:classic.rps_v2")
    assert (parallel.turn_based, turns.turn_based) == (False, True)
    parallel.reset(), turns.reset()
    assert parallel.step([np.int64(0), np.int64(1)]).rewards == [-1.0, 1.0]
    assert turns.step([np.int64(0), np.int64(0)]).acting == [False, True]
    # Paper beats rock: told to the first when its turn comes again; the second is told at its own next turn.
    assert turns.step([np.int64(1), np.int64(1)]).rewards == [-1.0, 0.0]


# PettingZoo Parallel


def test_simple_tag_numbers_arrive_unchanged() -> None:
    environment = make_environment("pettingzoo:mpe2.simple_tag_v3", {"max_cycles": 10})
    native = make_environment("pettingzoo:mpe2.simple_tag_v3", {"max_cycles": 10}).env
    names = [entity.name for entity in environment.entities]
    assert names == native.possible_agents and len({e.observation.shape for e in environment.entities}) == 2
    for actions, timestep in play(environment, 10):
        if actions is None:
            expected = (native.reset(seed=7)[0], *[dict.fromkeys(names, 0)] * 3)
        else:
            expected = native.step(dict(zip(names, actions, strict=True)))
        for i, name in enumerate(names):
            np.testing.assert_array_equal(timestep.observations[i], expected[0][name])
            assert timestep.rewards[i] == expected[1][name]
            assert (timestep.terminated[i], timestep.truncated[i]) == (expected[2][name], expected[3][name])
    assert timestep.over and all(timestep.truncated) and not any(timestep.terminated)


def test_agents_that_come_late_end_early_or_leave_without_a_word() -> None:
    environment = make_environment(f"{PARALLEL}:Shift")
    timestep = environment.reset()
    early, late, silent, steady = range(4)
    assert list(timestep.acting) == [True, False, True, True]
    np.testing.assert_array_equal(timestep.observations[late], np.zeros(3))
    steps = [timestep] + [environment.step([np.int64(1)] * 4) for _ in range(8)]
    acting = np.array([t.acting for t in steps])
    np.testing.assert_array_equal(acting[:, early], [1, 1, 1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(acting[:, late], [0, 0, 1, 1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(acting[:, silent], [1, 1, 1, 1, 1, 0, 0, 0, 0])
    ends = [(step, i) for step, t in enumerate(steps) for i in range(4) if t.terminated[i]]
    cuts = [(step, i) for step, t in enumerate(steps) for i in range(4) if t.truncated[i]]
    assert ends == [(3, early)]
    assert cuts == [(5, silent), (8, late), (8, steady)]
    assert steps[5].rewards[silent] == 2.0, "the pay of the step in which it left"
    # Whoever is gone keeps what it saw last, and is paid no more.
    assert steps[8].observations[early][0] == 3 and steps[8].observations[silent][0] == 4
    assert [t.rewards[early] for t in steps] == [0, 2, 2, 2, 0, 0, 0, 0, 0]
    assert [t.over for t in steps] == [False] * 8 + [True]


def test_a_new_episode_forgets_who_was_gone() -> None:
    environment = make_environment(f"{PARALLEL}:Shift")
    environment.reset()
    for _ in range(8):
        environment.step([np.int64(1)] * 4)
    timestep = environment.reset()
    assert list(timestep.acting) == [True, False, True, True]
    np.testing.assert_array_equal(timestep.observations[1], np.zeros(3))


def test_masks_in_infos_are_used_where_the_metadata_promise_them() -> None:
    environment = make_environment(f"{PARALLEL}:Shift", {"masks": True})
    assert [entity.mask_size for entity in environment.entities] == [3, 4, 5, 6]
    environment.reset()
    timestep = environment.step([np.int64(1)] * 4)
    np.testing.assert_array_equal(timestep.action_masks[0], [0, 1, 1])
    np.testing.assert_array_equal(timestep.action_masks[1], np.ones(4), err_msg="late is not there")
    assert make_environment(f"{PARALLEL}:Shift").entities[0].mask_size == 0


# Lists


def finish(settings: dict) -> object:
    environment = make_environment(f"{LISTS}:Line", settings)
    timestep = environment.reset(seed=1)
    while not timestep.over:
        timestep = environment.step([np.int64(1), np.zeros(1, np.float32), np.zeros(2, np.int64)])
    return timestep


@pytest.mark.parametrize("infos", ["one", "each"])
@pytest.mark.parametrize("key", ["TimeLimit.truncated", "truncated"])
def test_a_list_environment_is_truncated_where_its_info_says_so(key: str, infos: str) -> None:
    timestep = finish({"truncated_key": key, "infos": infos})
    assert list(timestep.truncated) == [True] * 3 and list(timestep.terminated) == [False] * 3


def test_a_list_environment_is_terminated_where_its_info_says_nothing() -> None:
    timestep = finish({"truncated_key": "stopped"})
    assert list(timestep.terminated) == [True] * 3 and list(timestep.truncated) == [False] * 3


def test_a_list_environment_with_the_old_seed_method_is_seeded() -> None:
    environment = make_environment(f"{LISTS}:Line")
    starts = [environment.reset(seed=seed).observations[0].tolist() for seed in (5, 6, 5)]
    assert starts[0] == starts[2] != starts[1]


def test_infos_of_a_list_environment_reach_their_entities() -> None:
    environment = make_environment(f"{LISTS}:Line", {"infos": "each"})
    assert list(environment.reset().infos) == [{"entity": 0}, {"entity": 1}, {"entity": 2}]
    timestep = make_environment(f"{LISTS}:Line").reset()
    timestep.infos[0]["mine"] = True
    assert timestep.infos[1] == {}


@pytest.mark.parametrize(
    ("name", "text"), [("DonePerEntity", "several values of done"), ("FiveItems", r"done, info\).*found 5 items")]
)
def test_a_list_environment_that_steps_otherwise_is_told_the_convention(name: str, text: str) -> None:
    environment = make_environment(f"{LISTS}:{name}")
    environment.reset()
    with pytest.raises(ConfigError, match=text):
        environment.step([np.int64(1), np.zeros(1, np.float32), np.zeros(2, np.int64)])


# Rendering


@pytest.mark.parametrize(
    "use", ["gymnasium:CartPole-v1", "pettingzoo:mpe2.simple_tag_v3", "pettingzoo:classic.tictactoe_v3"]
)
def test_render_draws_where_it_was_asked_for(use: str) -> None:
    environment = make_environment(use, render=True)
    environment.reset(seed=1)
    frame = environment.render()
    assert frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8 and frame.max() > frame.min()
    environment.close()
    plain = make_environment(use)
    plain.reset(seed=1)
    assert plain.render() is None
