"""Games outside and seats over HTTP in a configuration: what is refused, and with which words."""

from pathlib import Path

import pytest

from arena.common.errors import ConfigError
from arena.config.run import RunConfig, load_config
from arena.plan.assignment import port_number
from arena.plan.describe import describe
from arena.plan.layout import plan, ranks_of_run

TEMPLATE = """
name: outside
steps: 1000
env: {env}
policies: {policies}
{table}
"""
GATEWAY = '{use: gateway, num_envs: 2, settings: {game: "gymnasium:CartPole-v1"}}'
FOUR = '{use: "pettingzoo:classic.connect_four_v3"}'
ONE = "{learner: {use: ppo}}"
GUEST = "{learner: {use: ppo}, guest: {use: external, settings: {port: 8100}}, other: {use: external}}"


def load(
    place: Path, env: str = GATEWAY, policies: str = ONE, table: str = "matches: [{seats: [learner]}]"
) -> RunConfig:
    path = place / "outside.yaml"
    path.write_text(TEMPLATE.format(env=env, policies=policies, table=table), encoding="utf-8")
    return load_config(path)


def refused(place: Path, **words: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(place, **words)
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{}", "env.settings: expected game or spaces, from which the json actor knows its agents, found none"),
        ("{game: a, spaces: {}}", "env.settings: expected game or spaces, from which the json actor"),
        ("{game: a, prot: 8000}", "env.settings.prot: unknown key; did you mean 'port'?"),
        ("{game: a, port: 70000}", "env.settings.port: expected a number of at most 65535, found 70000"),
        ("{game: a, tls_key: k}", "env.settings.tls_cert: expected a file beside tls_key, found none"),
        ("{game: a, idle_timeout: 0}", "env.settings.idle_timeout: expected a number greater than 0.0, found 0"),
        ("{actor: nowhere.py:Snake}", "env.settings.actor: there is no file 'nowhere.py'"),
    ],
)
def test_settings_of_games_outside_are_checked_before_anything_starts(tmp_path: Path, settings: str, told: str) -> None:
    assert told in refused(tmp_path, env=f"{{use: gateway, settings: {settings}}}")


@pytest.mark.parametrize("key", ["in_worker: true", "manager: subprocess", "autoreset: same_step", "batches: 2"])
def test_what_steps_an_environment_has_no_meaning_for_games_outside(tmp_path: Path, key: str) -> None:
    name = key.partition(":")[0]
    env = f"{{use: gateway, num_envs: 2, {key}, settings: {{game: a}}}}"
    assert f"env.{name}: expected none with use: gateway, whose games are stepped outside" in refused(tmp_path, env=env)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("[{seats: [guest]}]", "expected a seat beside the external one (guest), found none"),
        ("[{seats: [guest, other]}]", "expected at most one external seat, found 2"),
        ("[{seats: [guest, learner], env: {in_worker: true}}]", "env.in_worker: expected"),
        ("[{seats: [guest, learner], env: {manager: subprocess}}]", "env.manager: expected serial beside an external"),
    ],
)
def test_a_seat_over_http_needs_a_match_that_waits_for_it(tmp_path: Path, table: str, told: str) -> None:
    assert told in refused(tmp_path, env=FOUR, policies=GUEST, table=f"matches: {table}")


def test_a_game_outside_asks_for_actions_itself(tmp_path: Path) -> None:
    table = "matches: [{seats: [guest, learner]}]"
    assert "expected none in a game outside" in refused(tmp_path, policies=GUEST, table=table)


def test_nothing_is_deterministic_that_comes_when_it_comes(tmp_path: Path) -> None:
    table = "matches: [{seats: [learner]}]\ndeterministic: true"
    assert "deterministic: expected false with games outside" in refused(tmp_path, table=table)


def test_gateways_are_in_the_plan_and_take_ports_one_after_the_other(tmp_path: Path) -> None:
    policies = "{learner: {use: ppo}, past: {use: random}, guest: {use: external, settings: {port: 8100}}}"
    table = "matches: [{seats: [learner, past]}, {seats: [guest, learner], replicas: 2}, {seats: [past, guest]}]"
    config = load(tmp_path, env=FOUR, policies=policies, table=table)
    assert ranks_of_run(config) == 1 + 3 + 2 * 2 + 2
    (round_,) = config.round_list()
    assert [row.outside for row in round_.rows] == [False, True, True]
    assert [[seat.player for seat in row.external] for row in round_.rows] == [[], ["guest"], ["guest"]]
    assert round_.rows[1].seats[0].entities == (1,)
    planned = plan(round_.rows, [0] * 10)
    roles = [one.role for one in planned.assignments]
    assert (roles.count("environment"), roles.count("gateway"), roles.count("worker")) == (1, 3, 5)
    assert [port_number(planned, round_.rows, match) for match in (1, 2, 3)] == [0, 1, 2]
    apart = plan(round_.rows, [0] * 5 + [1] * 5)
    assert sum(port_number(apart, round_.rows, match) for match in (1, 2, 3)) < 3  # each node counts for itself
    text = describe(planned, config, round_)
    assert "3 gateways" in text
    assert "connect_four_v3, guest outside" in text
    assert "group guest: no worker" not in text
    with pytest.raises(ConfigError, match="1 environment process \\+ 3 gateways \\+ 5 workers"):
        plan(round_.rows, [0] * 4)


def test_what_the_file_says_can_be_read_back(tmp_path: Path) -> None:
    config = load(tmp_path)
    (tmp_path / "again.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(tmp_path / "again.yaml") == config
