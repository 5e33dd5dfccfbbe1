"""The page's server: what it answers, whom it refuses, and that a stranger's run directory can run nothing."""

import json
import sqlite3
import stat
import time

import numpy as np
import pytest

from arena.launch import main
from arena.protocol.messages import Episodes, Failure
from arena.records.player_statistics import PlayerInfo
from arena.records.readers.run import open_records, read_returns
from arena.records.run_directory import RunDirectory
from arena.records.writers.run import RecordWriter
from tests.page.conftest import PLAYERS, add, episode, record, record_league

SCRIPT = "<script>document.title = 'run'</script><img src=x onerror=\"document.title='run'\">"


def curves(page, run: str = "first", *players: str, since: str = ""):
    query = "".join(f"&player={name}" for name in players or ("blue",))
    answer = page.get(f"/api/curves?run={run}{query}&since={since}")
    assert answer.status == 200, answer.body
    return answer.json


def test_a_finished_run_is_listed_with_its_state_and_its_curve(run, serve):
    page = serve(run.path)
    (line,) = page.get("/api/runs").json["runs"]
    assert (line["name"], line["state"], line["ranks"], line["attempts"]) == ("first", "stopped", 6, 1)
    assert [(player["name"], player["steps"]) for player in line["players"]] == [("blue", 8000), ("red", 4000)]
    answer = curves(page, "first", "blue", "red")
    assert answer["progress"] == 1.0
    series = {(part["player"], part["name"]): part for part in answer["series"]}
    assert set(series) == {
        *((player, name) for player in PLAYERS for name in ("return", "length", "win rate")),
        ("blue", "loss/policy"),
    }
    with open_records(run.database) as connection:
        expected = read_returns(connection)["blue"]
    blue = series["blue", "return"]
    index = expected.steps // blue["width"]
    means = [expected.values[index == bucket].mean() for bucket in blue["index"]]
    np.testing.assert_allclose(blue["mean"], means, rtol=1e-6)
    assert blue["count"].sum() == 400 and (blue["low"] <= blue["mean"]).all() and (blue["mean"] <= blue["high"]).all()
    wins = series["blue", "win rate"]
    assert (wins["mean"] * wins["count"]).sum() == 200


def test_a_poll_brings_what_is_new_and_nothing_else(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 110)
    records.flush(force=True)
    page = serve(run.path)
    first = curves(page)
    assert first["whole"] and {part["name"] for part in first["series"]} == {
        "return",
        "length",
        "win rate",
        "loss/policy",
    }
    again = curves(page, since=first["since"])
    assert not again["whole"] and again["series"] == []
    add(records, 110, 113)
    records.flush(force=True)
    new = curves(page, since=again["since"])
    (returns,) = [part for part in new["series"] if part["name"] == "return"]
    assert not new["whole"] and 1 <= len(returns["index"]) <= 3
    assert curves(page, since="7.3")["whole"], "another generation: everything is sent again"
    records.close(0)


def test_what_a_resume_has_played_again_is_not_shown_twice(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 100)
    state = records.state()
    add(records, 100, 200)
    records.close(1)
    page = serve(run.path)
    before = curves(page)
    again = RecordWriter(run, PLAYERS, host="node2", ranks=6, tensorboard=False)
    again.restore(state, 1)
    again.begin_round(0, continues=True)
    add(again, 100, 120)
    again.close(0)
    after = curves(page, since=before["since"])
    assert after["whole"] and [attempt["number"] for attempt in after["attempts"]] == [1, 2]
    (returns,) = [part for part in after["series"] if part["name"] == "return"]
    assert returns["count"].sum() == 120


def test_a_failed_run_says_why(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 10)
    records.fault(
        Failure(3, "node7", "worker of blue", "blue", False, "Traceback:\n  a line\nValueError: the loss is NaN\n")
    )
    records.close(1)
    (line,) = serve(run.path).get("/api/runs").json["runs"]
    assert (line["state"], line["reason"]) == ("failed", "ValueError: the loss is NaN")


def test_runs_below_a_root_appear_by_themselves(tmp_path, serve):
    """A run on another disk, which a link leads to, is one of them."""
    elsewhere, tmp_path = tmp_path / "elsewhere", tmp_path / "runs"
    tmp_path.mkdir()
    page = serve("--root", tmp_path)
    assert page.get("/api/runs").json == {"runs": []}
    record(RunDirectory(tmp_path, "one"), 10).close(0)
    record(RunDirectory(tmp_path / "sweep", "one"), 10).close(0)
    assert [line["name"] for line in page.get("/api/runs").json["runs"]] == ["one", "sweep/one"]
    record(RunDirectory(elsewhere, "far"), 10).close(0)
    (tmp_path / "near").symlink_to(elsewhere / "far")
    assert [line["name"] for line in page.get("/api/runs").json["runs"]] == ["one", "sweep/one", "near"]


@pytest.mark.parametrize("damage", ["truncated", "no database", "no records", "other version", "folder"])
def test_records_that_cannot_be_read_are_said_in_a_sentence(run, serve, damage):
    content = run.database.read_bytes()
    run.database.unlink()
    if damage == "truncated":
        run.database.write_bytes(content[: len(content) // 2])
    elif damage == "no database":
        run.database.write_bytes(b"\0\xff" * 5000)
    elif damage == "other version":
        run.database.write_bytes(content)
        connection = sqlite3.connect(run.database)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    elif damage == "folder":
        run.database.mkdir()
    page = serve(run.path)
    (line,) = page.get("/api/runs").json["runs"]
    assert line["state"] == "unreadable" and "arena.sqlite: expected" in line["reason"]
    answer = page.get("/api/curves?run=first&player=blue")
    assert answer.status == 409 and "arena.sqlite: expected" in answer.json["error"]
    assert str(run.path) not in answer.body


def test_names_from_a_stranger_stay_text(tmp_path, serve):
    run = RunDirectory(tmp_path, "<b onload=alert(1)>&amp;")
    players = {
        SCRIPT: PlayerInfo(SCRIPT, "#3b82f6"),
        "red": PlayerInfo("random", "red;}</style>" + SCRIPT, learns=False),
    }
    records = record(run, 10, players)
    records.fault(Failure(0, SCRIPT, SCRIPT, SCRIPT, False, SCRIPT))
    records.close(1)
    page = serve(run.path)
    (line,) = page.get("/api/runs").json["runs"]
    assert line["players"][0]["name"] == SCRIPT and line["reason"] == SCRIPT
    for path in ("/", "/api/runs", "/static/app.js"):
        answer = page.get(path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].split(";")[0] in ("text/html", "application/json", "text/javascript")
    assert "<script>document" not in page.get("/").body


def test_requests_that_are_refused(run, serve, tmp_path):
    (tmp_path / "secret").write_text("secret")
    page = serve(run.path)
    assert page.get("/").status == 200
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80", "[::1"):
        assert page.get("/api/runs", Host=host).status == 421, host
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:99"):
        assert page.get("/api/runs", Host=host).status == 200, host
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/../secret",
        "//etc/passwd",
        "/static/",
    ):
        assert page.get(path).status == 404, path
    for name in ("../secret", "..", "", "first/../first", "/etc"):
        answer = page.get(f"/api/curves?run={name}")
        assert answer.status == 404 and "there is no run" in answer.json["error"]
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert page.get("/api/runs", method).status == 405


def test_a_token_is_needed_once_and_no_other_opens_the_page(run, serve, tmp_path):
    file = tmp_path / "token"
    page = serve(run.path, "--token-file", file)
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and page.link.endswith(f"/?token={token}")
    for path in ("/", "/api/runs", "/static/app.js", "/?token=", f"/?token={token}x", "/?token=%C3%A9"):
        assert page.get(path).status == 401, path
    entered = page.get(f"/?token={token}")
    cookie = entered.headers["set-cookie"]
    assert entered.status == 307 and entered.headers["location"] == "./"
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and "path=" not in cookie.lower()
    own = cookie.partition(";")[0]
    assert page.get("/api/runs", Cookie=own).status == 200
    assert page.get("/api/runs", Cookie=own, Host="portal.example").status == 200, "as behind a proxy"
    assert page.get("/api/runs", Cookie=own + "x").status == 401
    assert page.get("/api/runs", Cookie="a=b; =; ;;").status == 401


def test_other_hosts_need_a_token_without_being_asked(run, serve):
    page = serve(run.path, "--host", "0.0.0.0")
    assert "?token=" in page.link
    assert page.get("/api/runs").status == 401


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: expected a run directory, found no config.yaml there"),
        (["--root", "nowhere"], "--root: expected a directory of runs, found no directory nowhere"),
        ([], "--root: expected a directory of runs, found no directory runs"),
        (["first", "--host", "192.0.2.1"], "host: expected an address of this machine"),
        (["first", "--token-file", "."], "--token-file: . cannot be read or written"),
    ],
)
def test_wrong_arguments_are_one_sentence(run, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(run.path.parent)
    assert main(["page", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_answers_are_json_for_every_browser(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 3)
    add(records, 3, 4)
    records.close(0)
    connection = sqlite3.connect(run.database)
    connection.execute("UPDATE episodes SET ended_at = 9e999 WHERE id = 1")
    connection.commit()
    connection.close()
    page = serve(run.path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for path in ("/api/runs", "/api/curves?run=first&player=blue"):
        json.loads(page.get(path).body, parse_constant=refuse)


def test_a_league_comes_with_who_beats_whom_then_and_now(tmp_path, serve):
    run = RunDirectory(tmp_path, "family")
    record_league(run)
    page = serve(run.path)
    answer = page.get("/api/league?run=family").json
    league = answer["league"]
    names = [player["name"] for player in league["players"]]
    assert (league["kind"], set(names)) == ("league", {"main", "exploiter", "main@1000", "main@2000"})
    assert {player["name"]: player["mu"] for player in league["players"]}["main@2000"] == 27.0
    standing, main, exploiter = league["standing"], names.index("main"), names.index("exploiter")
    counted = dict(zip(zip(standing["home"], standing["away"], strict=True), standing["won"], strict=True))
    assert counted == {(main, exploiter): 5.0, (main, names.index("main@1000")): 50.0}
    totals = league["totals"]
    names_of = [(names[home], names[away]) for home, away in zip(totals["home"], totals["away"], strict=True)]
    assert dict(zip(names_of, totals["games"], strict=True))[("main", "main@1000")] == 62.0
    assert (standing["low"] < standing["won"] / standing["games"]).all() and (standing["high"] <= 1).all()
    history = league["history"]
    met = (history["home"] == main) & (history["away"] == exploiter)
    assert (history["games"][met].sum(), history["won"][met].sum()) == (134, 14), (
        "each of 400 games, not the decayed ones"
    )
    assert league["draws"] == [["main", "exploiter", 2], ["main", "main@1000", 1]]
    assert "league" not in page.get(f"/api/league?run=family&since={answer['since']}").json


def test_the_ranks_come_with_their_time_and_before_that_with_their_plan(tmp_path, serve, run):
    league = RunDirectory(tmp_path, "family")
    record_league(league)
    league.log.mkdir(exist_ok=True)
    league.hang_report.write_bytes(b"rank 2 gave up \xff")
    page = serve(run.path, league.path)
    machine = page.get("/api/machine?run=family").json
    assert [rank["process"] for rank in machine["ranks"]] == [None] * len(machine["ranks"]), "of an earlier version"
    assert [(rank["rank"], rank["host"], rank["role"]) for rank in machine["ranks"]] == [
        (0, "node1", "root"),
        (1, "node1", "environment"),
        (2, "node2", "worker"),
    ]
    assert machine["ranks"][2]["now"] == [0.0, 0.2, 0.7, 0.0, 0.1]
    assert machine["ranks"][2]["mean"] == pytest.approx([0.0, 0.2, 0.7, 0.0, 0.1])
    assert machine["ranks"][1]["waits_for"] == "seat 0, 3 s"
    assert {series["role"]: len(series["time"]) for series in machine["history"]} == dict.fromkeys(
        ("root", "environment", "worker"), 3
    )
    assert machine["hang"] == "rank 2 gave up \ufffd"
    planned = {"hosts": ["node1"], "rounds": [{"assignments": [{"rank": 0, "role": "root", "match": None}]}]}
    run.plan.write_text(json.dumps(planned))
    machine = page.get("/api/machine?run=first").json
    assert (machine["is_measured"], machine["ranks"][0]["host"]) == (False, "node1")


def test_matches_come_with_their_seats_and_episodes(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run, 40)
    records.episodes(Episodes(0, (episode(1.0, 900, time.time(), cause="fault: it raised"),), 10))
    records.close(0)
    seats = [{"player": name, "entities": [number]} for number, name in enumerate(("blue", "red"))]
    parts = [{"rank": rank, "match": 0} for rank in (1, 2, 3)]
    planned = {"assignments": parts, "matches": [{"index": 0, "row": 0, "replica": 0, "seats": seats}]}
    run.plan.write_text(json.dumps({"hosts": ["node1"] * 4, "rounds": [planned]}))
    page = serve(run.path)
    (match,) = page.get("/api/matches?run=first").json["matches"]
    assert (match["episodes"], match["faults"], match["ranks"], match["hosts"]) == (41, 1, [1, 2, 3], ["node1"])
    assert [seat["player"] for seat in match["seats"]] == ["blue", "red"]
    run.plan.write_text("{")
    assert page.get("/api/matches?run=first").json["matches"] == []


def test_episodes_are_found_by_age_return_and_fault(tmp_path, serve):
    run = RunDirectory(tmp_path, "first")
    records = record(run)
    late = {"ended_at": time.time(), "metrics": ({"goals": 2.0}, {"goals": 4.0})}
    records.episodes(Episodes(0, (episode(9.0, 9000, **late), episode(99.0, 9000, **late, cause="fault: NaN")), 10))
    records.close(0)
    page = serve(run.path)

    def found(order, **query):
        rest = "".join(f"&{name}={value}" for name, value in query.items())
        return page.get(f"/api/episodes?run=first&player=blue&order={order}{rest}").json

    newest = found("newest")
    assert [each["id"] for each in newest["episodes"][:2]] == [402, 401]
    assert [each["id"] for each in found("newest", before=3)["episodes"]] == [2, 1]
    assert [each["id"] for each in found("best")["episodes"][:2]] == [401, 400], "one with a fault has no return"
    assert found("worst")["episodes"][0]["id"] == 1
    (faulty,) = found("faulty")["episodes"]
    assert (faulty["cause"], faulty["entities"][1]["return"]) == ("fault: NaN", -99.0)
    distribution = newest["distribution"]
    assert sum(distribution["return"]["counts"]) == distribution["episodes"] == 401
    assert distribution["metrics"]["goals"]["mean"] == 2.0
    assert page.get("/api/episodes?run=first&order=other").status == 404


def test_films_are_listed_and_only_they_are_served(run, serve):
    run.films.mkdir()
    for name in ("blue-100.gif", "part-blue-200.gif", "notes.txt"):
        (run.films / name).write_bytes(b"GIF89a")
    page = serve(run.path)
    assert page.get("/api/episodes?run=first").json["films"] == ["blue-100.gif"]
    film = page.get("/films/first/blue-100.gif")
    assert (film.status, film.headers["content-type"], film.body) == (200, "image/gif", "GIF89a")
    for name in (
        "notes.txt",
        "part-blue-200.gif",
        "..%2Fconfig.yaml",
        "../config.yaml",
        "..%2F..%2Ffirst%2Fconfig.yaml",
    ):
        assert page.get(f"/films/first/{name}").status == 404


def test_logs_are_read_from_their_end_and_followed(run, serve):
    run.log.mkdir(exist_ok=True)
    lines = b"".join(b"2026-01-01 00:00:00 INFO line %d\n" % number for number in range(10_000))
    run.arena_log.write_bytes(lines + b"\xff<script>\nunfinished")
    (run.log / "rank-00001.log").write_bytes(b"")
    (run.path / "secret.log").write_bytes(b"not a log of the run")
    page = serve(run.path)
    log = page.get("/api/log?run=first").json
    assert [name for name, _ in log["files"]] == ["arena.log", "rank-00001.log"]
    assert log["text"].startswith("2026") and log["text"].endswith("line 9999\n\ufffd<script>\n")
    earlier = page.get(f"/api/log?run=first&before={log['start']}").json
    assert earlier["end"] == log["start"] and earlier["text"].endswith("\n")
    with open(run.arena_log, "ab") as file:
        file.write(b" line\nnext\n")
    assert page.get(f"/api/log?run=first&start={log['end']}").json["text"] == "unfinished line\nnext\n"
    for name in ("../secret.log", "secret.log", "/etc/passwd", "..%2Fsecret.log"):
        assert page.get(f"/api/log?run=first&file={name}").status == 404


def test_a_configuration_comes_key_by_key_with_its_defaults(run, serve):
    run.config.write_text(
        "name: first\nenv: {use: touchdown, num_envs: 8}\npolicies: {p: {use: ppo, settings: {clip: 0.2}}}\n"
    )
    page = serve(run.path)
    answer = page.get("/api/configuration?run=first").json
    assert answer["keys"] == [
        ["name", "first", False],
        ["env.use", "touchdown", False],
        ["env.num_envs", "8", False],
        ["policies.p.use", "ppo", False],
        ["policies.p.settings.clip", "0.2", True],
    ]
    assert (answer["problem"], answer["ranks"], answer["path"]) == (None, 6, "first/config.yaml")


BILLIONS = b"a: &a [x, {y: 1}]\n" + b"".join(
    b"%c: &%c [" % (b, b) + b"*%c, " % (b - 1) * 8 + b"]\n" for b in b"bcdefgh"
)
"""A short file with eight times as many keys for each of its lines."""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"x" * 5_000_000, "config.yaml is shown as text only: expected at most 1,000,000 bytes, found 5,000,000"),
        (b"a: [\xff", "config.yaml is shown as text only: expected YAML"),
        (b"!!python/object/apply:os.system ['touch never']", "could not determine a constructor"),
        (
            BILLIONS,
            "config.yaml has more than 20,000 keys; the first of them are shown",
        ),
        (b"a: " + b"[" * 50_000, "config.yaml is shown as text only: expected at most 100 levels"),
        (None, "config.yaml cannot be read: No such file or directory"),
    ],
    ids=["5 MB", "no YAML", "code", "billions of keys", "deep", "missing"],
)  # fmt: skip
def test_a_configuration_that_cannot_be_shown_by_key_is_said_in_a_sentence(run, serve, text, sentence):
    page = serve(run.path)
    if text is None:
        run.config.unlink()
    else:
        run.config.write_bytes(text)
    answer = page.get("/api/configuration?run=first")
    assert answer.status == 200
    assert sentence in answer.json["problem"]
    assert len(answer.body) < 3_000_000


def test_a_table_has_its_pairs_too_and_a_run_of_one_player_none(tmp_path, serve, run):
    record(RunDirectory(tmp_path, "alone"), 20, {"blue": PLAYERS["blue"]}).close(0)
    page = serve(tmp_path)
    league = page.get("/api/league?run=first").json["league"]
    assert (league["kind"], [player["name"] for player in league["players"]]) == ("matches", ["blue", "red"])
    assert page.get("/api/league?run=alone").json["league"] is None
