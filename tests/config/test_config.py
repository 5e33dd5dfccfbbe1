"""Contents of a configuration file, and the message about each mistake in one."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from arena.common.errors import ConfigError
from arena.config.environment import EnvConfig
from arena.config.run import RunConfig, load_config
from arena.config.table import Seat
from arena.plan.layout import ranks_of_run

FILE = """\
name: test
steps: 400_000
env:
  use: touchdown
  settings: {team_size: 2}
  num_envs: 8
policies:
  blue:
    use: ppo
    settings:
      learning_rate: 1e-3
  red: {use: random}
matches:
  - seats: [blue, blue, red, red]
"""


@pytest.fixture
def load(tmp_path):
    """Load FILE with texts replaced and overrides applied."""

    def load(*overrides, **replacements):
        text = FILE
        for old, new in replacements.get("replace", {}).items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return load_config(path, overrides)

    return load


def told(load, *overrides, **replacements):
    """Return the lines of the error, without the folder of the file."""
    with pytest.raises(ConfigError) as refused:
        load(*overrides, **replacements)
    return [line[line.find("file.yaml") :] if "file.yaml" in line else line for line in str(refused.value).splitlines()]


def test_a_file_says_what_it_says_and_defaults_the_rest(load):
    config = load()
    assert config.steps == 400_000
    assert config.env.num_envs == 8
    assert config.policies["blue"].settings["learning_rate"] == 1e-3
    assert config.policies["blue"].settings["gamma"] == 0.99
    assert config.seed == 1
    assert ranks_of_run(config) == 6


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "learning_rate: 1e-3",
            "learning_rat: 1e-3",
            "file.yaml:11: policies.blue.settings.learning_rat: unknown key; did you mean 'learning_rate'?",
        ),
        ("num_envs: 8", "num_env: 8", "file.yaml:6: env.num_env: unknown key; did you mean 'num_envs'?"),
        ("steps: 400_000", "step: 400_000", "file.yaml:2: step: unknown key; did you mean 'steps'?"),
        ("steps: 400_000", "seed: 2", "file.yaml: steps: required key is missing: Transition steps"),
        ("num_envs: 8", "num_envs: '8'", "file.yaml:6: env.num_envs: expected a whole number, found '8' (text)"),
        ("num_envs: 8", "num_envs: 8.5", "file.yaml:6: env.num_envs: expected a whole number, found 8.5"),
        ("num_envs: 8", "num_envs: true", "file.yaml:6: env.num_envs: expected a whole number, found true"),
        ("num_envs: 8", "num_envs: 0", "file.yaml:6: env.num_envs: expected a number of at least 1, found 0"),
        (
            "num_envs: 8",
            "manager: seral",
            "file.yaml:6: env.manager: expected 'serial' or 'subprocess', found 'seral' (text)",
        ),
        (
            "num_envs: 8",
            "memory_limit: 500",
            "file.yaml:6: env.memory_limit: expected manager: subprocess, which alone can tell what a copy holds",
        ),
        (
            "num_envs: 8",
            "in_worker: true",
            "file.yaml:6: env.in_worker: expected matches of one seat, or learners for each policy that learns, found",
        ),
        (
            "{use: random}",
            "{use: random, learners: 1}",
            "file.yaml:12: policies.red.learners: expected a policy that learns, found random",
        ),
        (
            "use: ppo",
            "use: ppo\n    learners: 1\n    frozen: true",
            "file.yaml:10: policies.blue.learners: expected a policy that learns, found a frozen policy",
        ),
        (
            "use: ppo",
            "use: ppo\n    max_lag: 2",
            "file.yaml:10: policies.blue.max_lag: expected learners of 1 or more beside it, found 0",
        ),
        (
            "use: ppo",
            "use: ppo\n    learners: 3",
            "file.yaml:10: policies.blue.learners: expected at most one for each of the policy's 2 workers, found 3",
        ),
        ("{team_size: 2}", "[2]", "file.yaml:5: env.settings: expected a mapping, found a list of 1"),
        (
            "use: touchdown",
            "use: tochdown",
            "file.yaml:4: env.use: unknown environment 'tochdown' (did you mean 'touchdown'?)",
        ),
        ("use: ppo", "use: ppoo", "file.yaml:9: policies.blue.use: unknown policy 'ppoo' (did you mean 'ppo'?)"),
        ("{use: random}", "{}", "file.yaml:12: policies.red.use: required key is missing"),
        ("{use: random}", "random", "file.yaml:12: policies.red: expected a mapping, found 'random' (text)"),
        (
            "{use: random}",
            "{use: random, frozen: yes}",
            "file.yaml:12: policies.red.frozen: expected true or false, found 'yes'",
        ),
        (
            "{use: random}",
            "{use: random, color: rad}",
            "file.yaml:12: policies.red.color: expected #rrggbb or a CSS color name",
        ),
        (
            "{use: random}",
            "{use: random, settings: {x: 1}}",
            "file.yaml:12: policies.red.settings.x: unknown key; expected no keys",
        ),
        (
            "learning_rate: 1e-3",
            "learning_rate: fast",
            "file.yaml:11: policies.blue.settings.learning_rate: expected a number",
        ),
        (
            "learning_rate: 1e-3",
            "gamma: 2",
            "file.yaml:11: policies.blue.settings.gamma: expected a number of at most 1.0, found 2",
        ),
        # Pydantic alone would take these for numbers and a truth value.
        (
            "learning_rate: 1e-3",
            "horizon: '12'",
            "file.yaml:11: policies.blue.settings.horizon: expected a whole number of at least 1, or auto, found '12'",
        ),
        (
            "learning_rate: 1e-3",
            "clip: true",
            "file.yaml:11: policies.blue.settings.clip: expected a number, found true",
        ),
        (
            "learning_rate: 1e-3",
            "normalize_advantages: 1",
            "file.yaml:11: policies.blue.settings.normalize_advantages: expected true",
        ),
        (
            "learning_rate: 1e-3",
            "hidden: [64, '64']",
            "file.yaml:11: policies.blue.settings.hidden.1: expected a whole number",
        ),
        (
            "blue, blue, red, red",
            "blue, bleu",
            "file.yaml:14: matches.0.seats.1: there is no policy 'bleu' in policies; did you mean 'blue'?",
        ),
        ("blue, blue, red, red", "blue, [red, blue]", "file.yaml:14: matches.0.seats.1: one worker plays one policy"),
        (
            "[blue, blue, red, red]",
            "[]",
            "file.yaml:14: matches.0.seats: expected at least one item, found an empty list",
        ),
        ("[blue, blue, red, red]", "[blue, []]", "file.yaml:14: matches.0.seats.1: one worker plays one policy"),
        ("name: test", "name: a/b", "file.yaml:1: name: expected letters, digits, '.', '_' and '-'"),
        ("red: {use", "best: {use", "file.yaml:12: policies.best: 'best' cannot name a policy"),
        ("red: {use", "a.b: {use", "file.yaml:12: policies.a.b: expected a policy's name of letters"),
        ("name: test", "name: test\nname: again", "file.yaml:2: found key 'name' twice (first in line 1); keep one"),
        ("name: test", "name: [test", "file.yaml:2: not valid YAML"),
        ("name: test", "device: gpu\nname: test", "file.yaml:1: device: expected "),
        (
            "name: test",
            "name: test\nwaits: {warn_after: 9, abort_after: 8}",
            "file.yaml:2: waits.warn_after: expected at most abort_after",
        ),
    ],
)
def test_each_mistake_is_named_in_one_line_with_its_place_and_remedy(load, old, new, expected):
    lines = told(load, replace={old: new})
    assert len(lines) == 1
    assert lines[0].startswith(expected)


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file(load):
    lines = told(
        load,
        replace={
            "num_envs: 8": "num_envs: many",
            "learning_rate: 1e-3": "learning_rat: 1e-3\n      gama: 1",
            "red, red]": "red, green]",
        },
    )
    assert [line.split(":")[1] for line in lines] == ["6", "11", "12", "15"]
    assert "there is no policy 'green'" in lines[-1]


def test_a_misspelt_required_key_is_not_called_missing_as_well(load):
    assert len(told(load, replace={"use: ppo": "uses: ppo"})) == 1


@pytest.mark.parametrize(
    ("entities", "expected"),
    [
        ("[0, 1, 2]", "expected 4 indices, one for each name in seats, found 3"),
        ("[0, 1, 2, 2]", "expected each entity once, found 2 twice"),
        ("[0, 1, 2, -1]", "expected a number of at least 0, found -1"),
        ("[0, 1, 2, x]", "expected a whole number, found 'x' (text)"),
    ],
)
def test_impossible_entities_are_refused(load, entities, expected):
    lines = told(load, f"matches.0.entities={entities}")
    assert len(lines) == 1
    assert expected in lines[0]


def test_a_file_has_exactly_one_table(load):
    tables = "matches, round_robin, rounds, league"
    both = told(load, "round_robin={policies: [red, blue]}")
    assert both == [f"file.yaml: expected exactly one of {tables}, found matches and round_robin"]
    none = told(load, "matches=null")
    assert none == [f"file.yaml: expected exactly one of {tables}, found none"]


def test_numbers_are_read_as_people_write_them(load):
    config = load("steps=1e6", "seed=0x10", "checkpoint.every=3e1", "policies.blue.settings.learning_rate=3e-4")
    assert (config.steps, config.seed, config.checkpoint.every) == (1_000_000, 16, 30.0)
    assert config.policies["blue"].settings["learning_rate"] == 3e-4


@pytest.mark.parametrize("text", ["on", "no", "12:30", "2001-01-01", "1e", "e3"])
def test_what_looks_like_text_stays_text(load, text):
    assert load(f"env.settings.x={text}").env.settings["x"] == text


def test_merge_keys_and_anchors_work(load):
    config = load(
        replace={
            "red: {use: random}": (
                "red: &red {use: random, color: red}\n  green: {<<: *red, color: green}\n  again: *red"
            )
        }
    )
    assert config.policies["green"].use == "random"
    assert config.policies["green"].color == "green"
    assert config.policies["again"] == config.policies["red"]


def test_top_level_keys_that_begin_with_x_are_places_for_anchors(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "x-shared: &ppo {use: ppo, anything: goes}\nx-env: &env {use: touchdown}\nname: x\nsteps: 1000\nenv: *env\n"
        "policies: {a: {use: ppo}, b: {use: random}}\nmatches: [{seats: [a, a, b, b]}]\n"
    )
    config = load_config(path)
    assert config.env.use == "touchdown" and "x-" not in config.to_yaml()
    with pytest.raises(ConfigError, match="x-shared: unknown key"):
        load_config(path, ["x-shared.use=dqn"])
    path.write_text(path.read_text().replace("env: *env", "env: {x-inside: 3, use: touchdown}"))
    with pytest.raises(ConfigError, match="env.x-inside: unknown key"):
        load_config(path)


def test_an_alias_to_itself_is_refused(load):
    assert "found an alias to what it stands in" in told(load, replace={"{team_size: 2}": "&a {x: *a}"})[0]


class TestOverrides:
    def test_replace_what_the_file_says_and_leave_the_rest(self, load):
        config = load("env.settings.team_size=3", "matches.0.replicas=auto", "policies.red.color=orange")
        assert config.env.settings == {"team_size": 3}
        assert config.matches[0].replicas == "auto"
        assert config.policies["red"] == load().policies["red"].model_copy(update={"color": "orange"})

    def test_make_the_sections_on_the_way(self, load):
        assert load("checkpoint.keep=7").checkpoint.keep == 7
        assert load("matches.0.env.settings.team_size=5").round_list()[0].rows[0].env.settings == {"team_size": 5}

    def test_may_replace_the_table(self, load):
        config = load("matches=null", "round_robin={policies: [red, blue]}")
        assert ranks_of_run(config) == 4

    @pytest.mark.parametrize(
        ("override", "expected"),
        [
            ("policies.blue.x=1", "--set policies.blue.x: unknown key; expected one of use, settings"),
            ("policies.blue.colour=red", "--set policies.blue.colour: unknown key; did you mean 'color'?"),
            (
                "env.settings.port='{5 + indexx}'",
                "file.yaml:5: env.settings: unknown placeholder 'indexx' in '{5 + indexx}' (did you mean 'index'?)",
            ),
            (
                "policies.blu.settings.gamma=1",
                "--set policies.blu.settings.gamma: there is no 'blu' in policies; did you mean 'blue'?",
            ),
            ("steps=many", "--set steps: expected a whole number, found 'many' (text)"),
            ("matches.0.seats=[blu]", "--set matches.0.seats: matches.0.seats.0: there is no policy 'blu'"),
            ("matches.1.seats=[blue]", "--set matches.1.seats: expected an index of matches, 0 to 0, found '1'"),
            (
                "matches.first.seats=[blue]",
                "--set matches.first.seats: expected an index of matches, 0 to 0, found 'first'",
            ),
            ("name.first=a", "--set name.first: name has no keys"),
            (
                "matches.0.replicas=0",
                "--set matches.0.replicas: expected a whole number of at least 1, auto or cores, found 0",
            ),
            ("matches.0.env.batches=9", "--set matches.0.env.batches: expected at most num_envs (8), found 9"),
            ("seed", "--set seed: expected --set key.key=value"),
            ("seed=[1", "--set seed:1: not valid YAML"),
        ],
    )
    def test_are_refused_by_their_own_name(self, load, override, expected):
        lines = told(load, override)
        assert len(lines) == 1
        assert lines[0].startswith(expected)


class TestFiles:
    def test_are_found_from_here_then_beside_the_configuration(self, load, tmp_path, monkeypatch):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        (tmp_path / "mine.py").touch()
        beside = load("policies.red.use=mine.py:Mine", "env.wrappers=[{use: mine.py:Wrapper}]", "env.use=mine.py:make")
        assert beside.policies["red"].use == f"{tmp_path / 'mine.py'}:Mine"
        assert beside.env.use == f"{tmp_path / 'mine.py'}:make"
        assert beside.env.wrappers[0].use == f"{tmp_path / 'mine.py'}:Wrapper"
        (elsewhere / "mine.py").touch()
        assert load("policies.red.use=mine.py:Mine").policies["red"].use == f"{elsewhere / 'mine.py'}:Mine"

    def test_that_are_missing_are_refused(self, load):
        assert "there is no file 'mine.py'" in told(load, "policies.red.use=mine.py:Mine")[0]
        assert "there is no file 'w.safetensors'" in told(load, "policies.red.warm_start=w.safetensors")[0]
        assert "expected path/to/file.py:name" in told(load, "policies.red.use=mine.py")[0]

    def test_may_have_any_settings(self, load, tmp_path):
        (tmp_path / "mine.py").touch()
        red = {"use": "mine.py:Mine", "settings": {"anything": [1, None, {"goes": "1"}]}}
        config = load(f"policies.red={yaml.safe_dump(red, default_flow_style=True)}")
        assert config.policies["red"].settings == red["settings"]

    def test_a_warm_start_may_be_a_player_of_another_run(self, load, tmp_path):
        run = tmp_path / "runs" / "first"
        run.mkdir(parents=True)
        text = f"policies.red.warm_start={run}:blue@best"
        assert "expected a .safetensors file, or RUN:PLAYER with a run directory" in told(load, text)[0]
        (run / "config.yaml").touch()
        assert load(text).policies["red"].warm_start == f"{run}:blue@best"
        assert "there is no file 'runs/none'" in told(load, "policies.red.warm_start=runs/none:blue")[0]

    def test_warm_start_becomes_absolute(self, load, tmp_path):
        (tmp_path / "w.safetensors").touch()
        assert load("policies.red.warm_start=w.safetensors").policies["red"].warm_start == str(
            tmp_path / "w.safetensors"
        )


@pytest.mark.parametrize("use", ["gymnasium:CartPole-v1", "pettingzoo:mpe2.simple_tag_v3", "package.module:make_env"])
def test_environments_of_others_are_left_to_their_adapters(load, use):
    assert load(f"env.use={use}").env.use == use


def test_a_configuration_that_is_not_there_suggests_its_neighbour(tmp_path):
    (tmp_path / "quickstart.yaml").write_text(FILE)
    with pytest.raises(ConfigError, match="there is no file .*quikstart.yaml; did you mean .*quickstart.yaml?"):
        load_config(tmp_path / "quikstart.yaml")


@pytest.mark.parametrize(
    ("content", "expected"), [(b"", "found nothing"), (b"- 1", "found a list"), (b"\xff: 1", "UTF-8")]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path, content, expected):
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        load_config(path)


class TestTable:
    def test_seats_take_the_entities_in_order(self, load):
        (row,) = load("matches.0.seats=[[blue, blue], red, red]").round_list()[0].rows
        assert row.seats == (Seat("blue", (0, 1)), Seat("red", (2,)), Seat("red", (3,)))
        assert not row.remapped

    def test_entities_remap_them(self, load):
        (row,) = load("matches.0.seats=[[blue, blue], red]", "matches.0.entities=[3, 0, 7]").round_list()[0].rows
        assert row.seats == (Seat("blue", (3, 0)), Seat("red", (7,)))
        assert row.remapped

    def test_a_round_robin_is_every_pair(self, load):
        config = load(
            "matches=null",
            "policies.green={use: random}",
            "policies.yellow={use: random}",
            "round_robin={policies: [red, blue, green, yellow], team_size: 2, replicas: 5}",
        )
        rows = config.round_list()[0].rows
        pairs = [[seat.player for seat in row.seats] for row in rows]
        assert pairs == [
            ["red", "red", "blue", "blue"],
            ["red", "red", "green", "green"],
            ["red", "red", "yellow", "yellow"],
            ["blue", "blue", "green", "green"],
            ["blue", "blue", "yellow", "yellow"],
            ["green", "green", "yellow", "yellow"],
        ]
        assert all(row.replicas == 5 for row in rows)
        assert ranks_of_run(config) == 151

    @pytest.mark.parametrize("policies", ["[red]", "[red, red]", "[red, rad]", "[]"])
    def test_a_round_robin_needs_two_policies_that_exist(self, load, policies):
        assert told(load, "matches=null", f"round_robin={{policies: {policies}}}")[0].startswith("--set round_robin")


class TestMatchEnvironment:
    def row(self, load, override, *others):
        (row,) = load(f"matches.0.env={override}", *others).round_list()[0].rows
        return row.env

    def test_settings_are_merged_by_key_and_the_rest_is_replaced(self, load):
        env = self.row(load, "{settings: {colors: 1}, num_envs: 1}")
        assert env.settings == {"team_size": 2, "colors": 1}
        assert (env.use, env.num_envs, env.batch_count) == ("touchdown", 1, 1)

    def test_another_environment_leaves_settings_and_wrappers_behind(self, load):
        env = self.row(load, "{use: 'gymnasium:CartPole-v1'}", "env.wrappers=[{use: FlattenObservation}]")
        assert (env.settings, env.wrappers, env.num_envs) == ({}, (), 8)

    def test_the_same_environment_keeps_them(self, load):
        env = self.row(load, "{use: touchdown}", "env.wrappers=[{use: FlattenObservation}]")
        assert env.settings == {"team_size": 2}
        assert len(env.wrappers) == 1

    def test_batches_default_to_two_where_there_are_copies(self):
        assert EnvConfig(use="touchdown").batch_count == 1
        assert EnvConfig(use="touchdown", num_envs=2).batch_count == 2
        assert EnvConfig(use="touchdown", num_envs=8, batches=4).batch_count == 4


class TestRounds:
    ROUNDS = (
        "rounds=[{matches: [{seats: [blue, red, red, red]}], steps: 5, repeat: 2}, "
        "{round_robin: {policies: [red, blue]}}]"
    )

    def test_are_listed_in_order_with_repeats(self, load):
        rounds = load("matches=null", self.ROUNDS).round_list()
        assert [each.index for each in rounds] == [0, 1, 2]
        assert [each.steps for each in rounds] == [5, 5, 400_000]
        assert [len(each.rows[0].seats) for each in rounds] == [4, 4, 2]

    def test_need_the_ranks_of_the_largest(self, load):
        assert ranks_of_run(load("matches=null", self.ROUNDS)) == 6

    @pytest.mark.parametrize("copies", ["{others: best}", "{red: blue}", "{others: blue}", "{red: best}"])
    def test_copy_weights(self, load, copies):
        config = load("policies.red={use: ppo}", "matches=null", self.ROUNDS, f"rounds.0.copy={copies}")
        assert config.round_list()[0].copy == yaml.safe_load(copies)
        assert config.round_list()[2].copy == {}

    def test_the_best_of_different_kinds_cannot_be_copied_over_the_others(self, load):
        with pytest.raises(ConfigError, match="weights fit policies of the same kind only"):
            load("policies.red={use: sb3}", "matches=null", self.ROUNDS, "rounds.0.copy={others: best}")

    def test_a_player_that_does_not_learn_is_none_of_the_others(self, load):
        config = load("policies.red={use: random}", "matches=null", self.ROUNDS, "rounds.0.copy={others: best}")
        assert config.round_list()[0].copy == {"others": "best"}

    @pytest.mark.parametrize(
        ("copies", "expected"),
        [
            ("{rad: blue}", "there is no policy 'rad' in policies; did you mean 'red'?"),
            ("{red: bets}", "there is no policy 'bets' in policies; did you mean 'best'?"),
            ("{red: red}", "expected two different policies, found 'red' twice"),
            ("{red: blue}", "weights fit policies of the same kind only, found red (random), blue (ppo)"),
        ],
    )
    def test_refuse_copies_that_cannot_be(self, load, copies, expected):
        lines = told(load, "matches=null", self.ROUNDS, f"rounds.0.copy={copies}")
        assert len(lines) == 1
        assert expected in lines[0]

    def test_leave_frozen_policies_out_of_best_and_others(self, load):
        load("policies.red={use: random, frozen: true}", "matches=null", self.ROUNDS, "rounds.0.copy={others: best}")

    def test_each_need_one_table(self, load):
        lines = told(load, "matches=null", "rounds=[{steps: 3}]")
        assert lines == ["--set rounds: rounds.0: expected exactly one of matches, round_robin, found none"]

    def test_name_policies_that_exist(self, load):
        lines = told(load, "matches=null", "rounds=[{matches: [{seats: [[blue, blu]]}, {seats: [rad]}]}]")
        assert "rounds.0.matches.0.seats.0: one worker plays one policy" in lines[0]
        lines = told(load, "matches=null", "rounds=[{matches: [{seats: [[blu, blu]]}, {seats: [rad]}]}]")
        assert [line.split(": ")[1] for line in lines] == [
            "rounds.0.matches.0.seats.0.0",
            "rounds.0.matches.0.seats.0.1",
            "rounds.0.matches.1.seats.0",
        ]


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["matches.0.seats=[[blue, blue], red]", "matches.0.entities=[3, 0, 7]", "matches.0.env={settings: {x: null}}"],
        ["matches=null", TestRounds.ROUNDS, "policies.red.use=ppo", "rounds.0.copy={others: best}"],
        ["matches=null", "round_robin={policies: [red, blue], replicas: auto}"],
        ["policies.blue.settings.max_grad_norm=null", "policies.blue.settings.hidden=[3, 4]"],
        ["env.settings={a: 3e-5, b: 'on', c: '3e-4', d: '1_000', e: ~, f: '0o7', g: [1, {h: .inf}], i: '', j: 'é: #'}"],
    ],
)
def test_what_is_written_to_the_run_directory_reads_back_equal(load, tmp_path, overrides):
    config = load(*overrides)
    written = tmp_path / "written.yaml"
    written.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(written) == config
    assert list(yaml.safe_load(config.to_yaml()))[:4] == ["name", "seed", "steps", "env"]


def test_settings_that_the_file_leaves_out_are_filled_in_too(load):
    assert load("policies.red={use: ppo}").policies["red"].settings["horizon"] == "auto"


def test_the_root_can_send_it_to_everybody(load):
    config = load()
    assert pickle.loads(pickle.dumps(config)) == config


def test_nobody_can_change_it_behind_the_others_backs(load):
    with pytest.raises(ValueError, match="frozen"):
        load().steps = 3


def test_checking_a_file_does_not_change_it():
    data = yaml.safe_load(FILE.replace("1e-3", "0.001"))
    before = copy.deepcopy(data)
    assert RunConfig.model_validate(data).steps == 400_000
    assert data == before


def test_reading_a_file_loads_neither_torch_nor_mpi(tmp_path):
    # The root reads it, and processes that need neither stay small.
    path = tmp_path / "file.yaml"
    path.write_text(FILE)
    code = (
        "import sys; from pathlib import Path; import arena.plan.describe; from arena.config.run import load_config;"
        f"load_config(Path({str(path)!r})).round_list(); print(sorted({{'torch', 'mpi4py'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_paths_in_the_written_file_are_absolute(load, tmp_path):
    (tmp_path / "mine.py").touch()
    config = load("policies.red.use=mine.py:Mine")
    assert Path(yaml.safe_load(config.to_yaml())["policies"]["red"]["use"].partition(":")[0]).is_absolute()


def test_a_deterministic_run_refuses_what_goes_by_the_clock(load):
    assert load("deterministic=true").checkpoint.updates == 20
    nobody_learns = {"seats: [blue, blue, red, red]": "seats: [red, red, red, red]"}
    (line,) = told(load, "deterministic=true", replace=nobody_learns)
    assert "matches.0: expected a policy that learns in every match of a deterministic run" in line
    league = {"matches:\n  - seats: [blue, blue, red, red]": "league: {policy: blue}"}
    lines = told(load, "deterministic=true", replace=league)
    assert any("deterministic: expected a table of matches, found a league" in line for line in lines), lines


def test_spares_need_fault_tolerance_and_count_as_ranks(load):
    tolerant = load("fault_tolerance=ulfm", "spares=2")
    assert ranks_of_run(tolerant) == ranks_of_run(load("fault_tolerance=ulfm")) + 2
    (line,) = told(load, "spares=2")
    assert "spares: expected fault_tolerance: ulfm" in line
    (line,) = told(load, "fault_tolerance=ulfm", "deterministic=true")
    assert "fault_tolerance: expected none in a deterministic run" in line
