"""Any file or table is refused with one clear message, or planned as written."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.common.errors import ConfigError
from arena.config.run import load_config
from arena.plan.layout import plan, ranks_of_run

names = st.sampled_from(["blue", "red", "green", "best", "", "a/b", "blue_2"])
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.floats(allow_nan=True),
    st.sampled_from(["auto", "touchdown", "ppo", "random", "serial", "subprocess", "next_step", "1_000", "null", "ü"]),
    st.text(max_size=6),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(names, st.integers(0, 3), max_size=2),
)
environments = st.fixed_dictionaries(
    {"use": st.sampled_from(["touchdown", "gymnasium:CartPole-v1", "nowhere:make", "touchdwn"])},
    optional={
        "settings": st.dictionaries(st.sampled_from(["team_size", "max_steps"]), st.integers(1, 3), max_size=2),
        "num_envs": st.integers(0, 5),
        "batches": st.integers(0, 5),
        "manager": st.sampled_from(["serial", "subprocess"]),
        "memory_limit": st.floats(-1, 900),
        "step_timeout": st.floats(-1, 9),
        "max_retry": st.integers(-1, 9),
        "retry": st.sampled_from(["renew", "reset", "again"]),
    },
)
rows = st.fixed_dictionaries(
    {"seats": st.lists(st.one_of(names, st.lists(names, max_size=3)), max_size=5)},
    optional={
        "replicas": st.one_of(st.just("auto"), st.integers(0, 3)),
        "entities": st.lists(st.integers(-1, 6), max_size=6),
        "env": st.dictionaries(st.sampled_from(["num_envs", "batches"]), st.integers(0, 4), max_size=2),
    },
)
policies = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {"use": st.sampled_from(["ppo", "random", "sb3", "pppo"])}, optional={"frozen": st.booleans()}
    ),
    max_size=3,
)
configurations = st.fixed_dictionaries(
    {"steps": st.integers(0, 5000), "env": environments, "policies": policies},
    optional={
        "matches": st.lists(rows, max_size=3),
        "rounds": st.lists(st.fixed_dictionaries({"matches": st.lists(rows, max_size=2)}), max_size=2),
        "round_robin": st.fixed_dictionaries({"policies": st.lists(names, max_size=3)}),
        "seed": st.integers(-2, 2**40),
        "checkpoint": st.dictionaries(st.sampled_from(["every", "keep", "ever"]), st.floats(-1, 9), max_size=2),
    },
)


def sound() -> st.SearchStrategy[dict]:
    """Return configurations that should do, most of them."""
    table = st.lists(st.sampled_from(["blue", "red"]), min_size=1, max_size=4).map(lambda listed: {"seats": listed})
    return st.fixed_dictionaries(
        {
            "steps": st.integers(1, 5000),
            "env": st.just({"use": "touchdown"}),
            "policies": st.just({"blue": {"use": "ppo"}, "red": {"use": "random"}}),
            "matches": st.lists(table, min_size=1, max_size=3),
        }
    )


@st.composite
def files(draw: Any) -> str:
    """Draw a file: values of the right kind, some of them replaced, some of its text spoiled."""
    config = draw(st.one_of(sound(), configurations))
    for _ in range(draw(st.integers(0, 2))):
        place: Any = config
        while isinstance(place, (dict, list)) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], (dict, list)) or draw(st.booleans()):
                place[key] = draw(odd)
                break
            place = place[key]
    text = yaml.safe_dump(config, allow_unicode=True, sort_keys=False)
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["\t", ": ", "[", "- ", "&a ", "*b", "\0", "!!x ", "\n"])) + text[at:]
    return text


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(files(), st.integers(0, 7), st.integers(1, 3))
def test_every_file_is_refused_clearly_or_planned_as_it_says(text: str, spare: int, nodes: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "file.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            config = load_config(path)
            ranks = ranks_of_run(config) + spare
            planned = [(round_, plan(round_.rows, [r % nodes for r in range(ranks)])) for round_ in config.round_list()]
        except ConfigError as error:
            told = str(error)
            assert told.strip()
            assert "Traceback" not in told and "pydantic" not in told
            assert "file.yaml" in told, told
            return
    for round_, one in planned:
        assert Counter(a.role for a in one.assignments)["root"] == 1
        assert [a.rank for a in one.assignments] == list(range(ranks))
        seated = [rank for ranks_ in one.seating for rank in ranks_]
        assert len(seated) == len(set(seated)) and 0 not in seated
        for match in one.matches:
            row = round_.rows[match.row]
            assert match.seats == row.seats
            entities = [entity for seat in match.seats for entity in seat.entities]
            assert len(entities) == len(set(entities)), "two seats play one entity"
            _, workers = one.match_ranks(match.index)
            assert [one.assignments[rank].player for rank in workers] == [seat.player for seat in match.seats]
