"""The drawn plan: complete, readable, and the same every time; the committed pictures: what their sources draw."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import get_data_path
from matplotlib.colors import CSS4_COLORS
from PIL import ImageFont

from arena.common.colors import to_hex
from arena.common.text import ranges
from arena.config.environment import EnvConfig
from arena.config.rounds import TableRow
from arena.config.table import Seat
from arena.plan.assignment import Plan
from arena.plan.diagram import draw_plan
from arena.plan.diagram.sheet import text_width
from arena.plan.diagram.styles import PAPER, contrast, line_color, text_color, worker_style
from arena.plan.layout import plan, ranks_needed

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
# The widest of the fonts that viewers fall back to: what fits in it fits.
FONTS = {
    weight: ImageFont.truetype(Path(get_data_path()) / "fonts" / "ttf" / name, 100)
    for weight, name in {"normal": "DejaVuSans.ttf", "bold": "DejaVuSans-Bold.ttf"}.items()
}


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    fill: str

    def holds(self, x: float, y: float) -> bool:
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def overlaps(self, other: "Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class Label(NamedTuple):
    text: str
    left: float
    right: float
    middle: float
    base: float


TOUCHDOWN = EnvConfig(use="touchdown")


def row(*players: str, replicas: int = 1) -> TableRow:
    return TableRow(tuple(Seat(player, (entity,)) for entity, player in enumerate(players)), replicas, TOUCHDOWN)


def make_plan(rows: Sequence[TableRow], spare: int = 0, per_node: int | None = None) -> Plan:
    ranks = ranks_needed(rows) + spare
    return plan(rows, [rank // (per_node or ranks) for rank in range(ranks)])


def round_robin() -> Plan:
    pairs = [("red", "blue"), ("red", "green"), ("red", "yellow"), ("blue", "green"), ("blue", "yellow")]
    return make_plan([row(a, a, b, b, replicas=5) for a, b in [*pairs, ("green", "yellow")]])


def read(svg: str) -> tuple[Box, list[Box], list[Label]]:
    """Return the page, every box in drawing order, and every text with its measured extent."""
    page = ET.fromstring(svg.encode())
    boxes, labels = [], []
    for shape in page.iter():
        if shape.tag == f"{SVG}rect":
            x, y, width, height = (float(shape.attrib[key]) for key in ("x", "y", "width", "height"))
            boxes.append(Box(x, y, x + width, y + height, shape.attrib["fill"]))
        if shape.tag == f"{SVG}text":
            x, size = float(shape.attrib["x"]), float(shape.attrib["font-size"])
            width = FONTS[shape.get("font-weight", "normal")].getlength(shape.text or "") * size / 100
            left = x - {"start": 0, "middle": width / 2, "end": width}[shape.get("text-anchor", "start")]
            labels.append(Label(shape.text or "", left, left + width, left + width / 2, float(shape.attrib["y"])))
    return Box(0, 0, float(page.attrib["width"]), float(page.attrib["height"]), PAPER), boxes, labels


def texts(svg: str) -> list[str]:
    return [label.text for label in read(svg)[2]]


def assert_readable(svg: str) -> None:
    """Hold every text inside the box it stands in, everything on the page, and no text on another."""
    page, boxes, labels = read(svg)
    assert page.right <= 900
    for box in boxes:
        assert 0 <= box.left <= box.right <= page.right and 0 <= box.top <= box.bottom <= page.bottom, box
    for label in labels:
        around = [page, *(box for box in boxes if box.holds(label.middle, label.base - 3))]
        smallest = min(around, key=lambda box: (box.right - box.left) * (box.bottom - box.top))
        assert smallest.left <= label.left + 0.5 and label.right - 0.5 <= smallest.right, (label, smallest)
    places = [Box(each.left, each.base - 8, each.right, each.base + 1, "") for each in labels if each.text]
    for number, place in enumerate(places):
        clashes = [labels[number], *(other for other in places[:number] if place.overlaps(other))]
        assert len(clashes) == 1, clashes


def test_example_shows_who_does_what() -> None:
    svg = draw_plan(make_plan([row("blue", "blue", "red", "red")]), {}, "2v2")
    shown = texts(svg)
    for rank in (2, 3, 4, 5):
        assert f"worker · rank {rank}" in shown
        assert f"seat {rank - 2} · entity {rank - 2}" in shown
    for text in ("2v2", "root", "environment process", "match 0", "rank 1", "node 0", "blue", "group of 2 workers"):
        assert text in shown
    assert "6 ranks on 1 node: 1 root, 1 environment process, 4 worker processes" in shown
    assert shown.count("gradients") == 2
    assert_readable(svg)


def test_workers_have_the_colour_of_their_player() -> None:
    svg = draw_plan(make_plan([row("a", "b", "b")]), {"a": "#0000aa", "b": "#ffee00"}, "colours")
    fills = [box.fill for box in read(svg)[1]]
    assert fills.count("#0000aa") == 1
    assert fills.count("#ffee00") == 2


def test_nested_seat_names_its_entities() -> None:
    planned = make_plan([TableRow((Seat("blue", (0, 2, 3)), Seat("red", (1,))), 1, TOUCHDOWN)])
    assert "seat 0 · entities 0, 2–3" in texts(draw_plan(planned, {}, "nested"))


def test_thirty_matches_are_thirty_tiles_with_every_rank_once() -> None:
    svg = draw_plan(round_robin(), {}, "round robin")
    shown = texts(svg)
    environments = [int(text.split()[-1]) for text in shown if text.startswith("match ")]
    workers = [int(text) for text in shown if text.isdigit()]
    assert len(environments) == 30
    assert sorted([0, *environments, *workers]) == list(range(151))
    assert [text for text in shown if text.startswith("replica ")] == [f"replica {n}" for n in range(5)]
    assert shown.count("30 workers") == 4
    assert read(svg)[0].bottom < 1000
    assert_readable(svg)


def test_hundred_thousand_ranks_fold_into_one_small_page() -> None:
    planned = make_plan([row("red", "blue", replicas=20_000), row("red", "green", replicas=13_000)], 999, per_node=64)
    svg = draw_plan(planned, {}, "huge")
    assert len(svg) < 50_000
    shown = texts(svg)
    assert "20,000 replicas" in shown
    assert "matches 20,000–32,999" in shown
    assert "… 33,000 workers" in shown
    assert_readable(svg)


def test_idle_ranks_are_shown() -> None:
    assert "idle: ranks 4–6" in texts(draw_plan(make_plan([row("a", "b")], spare=3), {}, "few"))
    shown = texts(draw_plan(make_plan([row("a", replicas=12)], spare=2, per_node=25), {}, "many"))
    assert "idle on node 1: ranks 25–26" in shown


def test_workers_away_from_their_environment_process_are_marked() -> None:
    near = draw_plan(make_plan([row("a", "b", "b")], per_node=5), {}, "near")
    away = draw_plan(make_plan([row("a", "b", "b")], per_node=3), {}, "away")
    explanation = "broken outline: a worker on another node than its environment process"
    assert explanation not in texts(near)
    assert explanation in texts(away)
    assert away.count('stroke-dasharray="3 2"') == 2 + 1  # two workers, and the explanation


def test_frozen_players_exchange_no_gradients() -> None:
    planned = make_plan([row("a", "a", "b", "b")])
    shown = texts(draw_plan(planned, {}, "frozen", frozen={"b"}))
    assert shown.count("gradients") == 1
    assert shown.count("frozen") == 2  # the title, and b
    many = make_plan([row("a", "b", replicas=2)] * 5)
    assert "10 workers, frozen" in texts(draw_plan(many, {}, "", frozen={"b"}))


def test_markup_in_names_is_text() -> None:
    svg = draw_plan(make_plan([row("<b>&", '"x"')]), {}, "<i>&amp;</i>")
    assert {"<b>&", '"x"', "<i>&amp;</i>"} <= set(texts(svg))


def test_same_plan_gives_the_same_bytes() -> None:
    assert draw_plan(round_robin(), {}, "again") == draw_plan(round_robin(), {}, "again")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.builds(
            lambda players, replicas: row(*players, replicas=replicas),
            st.lists(
                st.sampled_from(["blue", "red", "a", "WWWWWWWWWWWWWWWWWWWWWWWWW", "main_exploiter_zerg_12"]),
                min_size=1,
                max_size=9,
            ),
            st.integers(1, 9),
        ),
        min_size=1,
        max_size=9,
    ),
    spare=st.integers(0, 40),
    per_node=st.integers(1, 40),
    learners=st.dictionaries(st.sampled_from(["blue", "main_exploiter_zerg_12"]), st.integers(1, 7)),
)
@pytest.mark.tier("all")
def test_no_plan_makes_text_leave_its_box(
    rows: list[TableRow], spare: int, per_node: int, learners: dict[str, int]
) -> None:
    rows = [
        each._replace(learners={s.player: learners[s.player] for s in each.seats if s.player in learners})
        for each in rows
    ]
    assert_readable(draw_plan(make_plan(rows, spare, per_node), {}, "A title " * 30))


def test_learners_are_shown_with_the_workers_that_send_to_them() -> None:
    inside = EnvConfig(use="touchdown", in_worker=True)
    learning = row("a", "b", replicas=2)._replace(env=inside, learners={"a": 2, "b": 1})
    shown = texts(draw_plan(make_plan([learning]), {}, "learners"))
    assert "6 ranks on 1 node: 1 root, 2 runners, 3 learners" in shown
    assert shown.count("environment in runner") == shown.count("experience") == shown.count("learner 0") == 2
    assert "learner 1" in shown and "each rollout: experience to the learner, weights back" in shown
    many = make_plan([learning._replace(replicas=20)])
    assert "20 workers, 2 learners" in texts(draw_plan(many, {}, "many"))


def test_every_colour_stays_readable() -> None:
    for color in map(to_hex, CSS4_COLORS):
        style = worker_style(color)
        assert contrast(style.fill, style.ink) >= 4.5, color
        assert contrast(line_color(color), PAPER) >= 3.0, color
        assert contrast(text_color(color), PAPER) >= 4.5, color


def test_no_letter_is_wider_than_it_is_taken_to_be() -> None:
    for weight, font in FONTS.items():
        for letter in (*map(chr, range(32, 127)), "·", "–", "…", "ä"):
            assert font.getlength(letter) / 100 <= text_width(letter, 1.0, weight), (letter, weight)


def test_rank_ranges() -> None:
    assert ranges([7, 1, 2, 3], "–") == "1–3, 7"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from diagrams import build

    return build


def test_committed_pictures_are_what_their_sources_draw(build: ModuleType) -> None:
    assert build.stale() == [], "run python -m diagrams.build"


def test_check_names_the_picture_that_is_out_of_date(build: ModuleType, tmp_path: Path) -> None:
    for name in build.PICTURES:
        (tmp_path / name).write_text((ROOT / "diagrams" / name).read_text("utf-8"), "utf-8")
    changed = tmp_path / "proxy.svg"
    changed.write_text(changed.read_text("utf-8").replace("policy", "polisy"), "utf-8")
    (tmp_path / "worker_process.svg").unlink()
    assert build.stale(tmp_path) == ["worker_process.svg", "proxy.svg"]


@pytest.mark.parametrize(
    "name", ["environment_process", "worker_process", "proxy", "example_2v2", "example_30_matches", "gradient_column"]
)
def test_pictures_are_readable(name: str) -> None:
    assert_readable((ROOT / "diagrams" / f"{name}.svg").read_text("utf-8"))
