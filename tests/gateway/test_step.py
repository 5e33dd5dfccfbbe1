"""``POST /step``, case by case as the guide's table has them, over real sockets."""

import http.client
import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from benchmarks.tools.serving import Served
from benchmarks.tools.trained import POLE, give_weights, make_run

pytestmark = pytest.mark.tier("default")

PROBE = '''
import asyncio

from arena.gateway import Actor, BadRequest

ENDED = []


class Probe(Actor):
    """Does what it is told, and counts how often it was asked."""

    content_type = "text/plain"

    def __init__(self, agents, config, game_id, data):
        self.agents, self.game_id, self.asked = agents, game_id, 0
        assert config == {"word": "hello"}
        if data == b"raise":
            raise RuntimeError("secret of the constructor")
        if data == b"bad":
            raise BadRequest("expected better bytes")

    async def do(self, data):
        self.asked += 1
        word, _, rest = data.decode().partition(" ")
        if word == "raise":
            raise RuntimeError("a secret")
        if word == "bad":
            raise BadRequest("expected better bytes")
        if word == "sleep":
            await asyncio.sleep(float(rest.split()[0]))
        if word == "own":
            raise TimeoutError("of the actor itself")
        if word == "text":
            return "not bytes"
        if word == "none":
            return None
        if word == "long":
            return bytes(101)
        if word == "ended":
            return " ".join(how for game, how in ENDED if game == rest).encode()
        return f"{self.game_id} {self.asked} {rest}".encode()

    async def tick(self, data):
        return await self.do(data)

    async def end(self, data):
        ENDED.append((self.game_id, self.agents.ending))
        return await self.do(data)


class SlowToStart(Probe):
    def __new__(cls, agents, config, game_id, data):
        if data.startswith(b"sleep"):
            return cls.later(agents, config, game_id, data)
        return super().__new__(cls)

    @classmethod
    async def later(cls, agents, config, game_id, data):
        await asyncio.sleep(float(data.split()[1]))
        if data.endswith(b"raise"):
            raise RuntimeError("late")
        return Probe(agents, config, game_id, b"")
'''


class Told(NamedTuple):
    status: int
    body: bytes
    headers: dict

    @property
    def code(self):
        return None if self.status == 200 else json.loads(self.body)["code"]

    @property
    def error(self):
        return json.loads(self.body)["error"]

    @property
    def replayed(self):
        return self.headers.get("replayed") == "1"

    def is_(self, status, code=None, *, replayed=False):
        assert (self.status, self.code, self.replayed) == (status, code, replayed), self
        return self


def request(server, headers, body=b"", method="POST", path="/step"):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        told = Told(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
    finally:
        connection.close()
    assert int(told.headers["content-length"]) == len(told.body)
    if told.status != 200:
        said = json.loads(told.body)
        assert said.keys() == {"error", "code", "id"} and len(said["id"]) == 16
        assert told.headers["content-type"] == "application/json" and b"secret" not in told.body
    return told


class Game:
    """The game's side of one game, and of others that it needs."""

    numbers = itertools.count()

    def __init__(self, server, threads):
        self.server, self.threads = server, threads
        self.id = f"g{next(self.numbers)}"
        self.others = []

    def __call__(self, kind, tick=None, body=b"", *, game=None, **headers):
        sent = {"step_kind": kind, "game_id": game or self.id} | ({} if tick is None else {"tick_id": str(tick)})
        return request(self.server, sent | headers, body.encode() if isinstance(body, str) else body)

    def later(self, *arguments, **keywords):
        """Send a request, and return what will be its answer; it has reached the server when this returns."""
        future = self.threads.submit(self, *arguments, **keywords)
        time.sleep(0.1)
        return future

    def another(self):
        other = Game(self.server, self.threads)
        self.others.append(other)
        return other

    def ended_as(self):
        """Return the reason for the game's end that the actor received."""
        other = self.another()
        other("start").is_(200)
        told = other("tick", body=f"ended {self.id}").is_(200).body.decode()
        other("stop")
        return told.split()

    def tidy(self):
        for game in (self, *self.others):
            game("stop")


def start_replayed(game):
    first = game("start", 5).is_(200)
    assert first.body == b"" and first.headers["version"] == "blue@1000"
    assert first.headers["content-type"] == "application/octet-stream"
    game("start", 5).is_(200, replayed=True)
    game("tick", 6).is_(200)
    assert game("start", 5).is_(200, replayed=True).body == b""  # also when others came after it


def last_replayed(game):
    game("start", 0)
    first = game("tick", 1, "do x").is_(200)
    assert first.body == f"{game.id} 1 x".encode() and first.headers["content-type"] == "text/plain"
    again = game("tick", 1, "do y").is_(200, replayed=True)  # bodies of retries are not compared
    assert again.body == first.body and again.headers["content-type"] == "text/plain"
    assert game("tick", 2, "do z").body == f"{game.id} 2 z".encode(), "a retry does not reach the actor"
    game("tick", 1).is_(409, "stale_tick")


def last_of_an_ended_game_replayed(game):
    game("start", 0)
    first = game("end", 9, "do x").is_(200)
    assert game("end", 9).is_(200, replayed=True).body == first.body
    game("stop", 9).is_(409, "stale_tick")
    game("end", 10).is_(410, "ended")


def joined(game):
    game("start", 0)
    running = game.later("tick", 1, "sleep 0.8")
    waiting = game.later("tick", 2, "do x")
    same, same_waiting = game.later("tick", 1, "do y"), game.later("tick", 2, "do z")
    first = running.result().is_(200)
    assert same.result().is_(200, replayed=True).body == first.body
    assert waiting.result().is_(200).body == f"{game.id} 2 x".encode()
    assert same_waiting.result().is_(200, replayed=True).body == f"{game.id} 2 x".encode()


def joined_error(game):
    game("start", 0)
    running = game.later("tick", 1, "sleep 9")
    same = game.later("tick", 1)
    assert running.result().is_(504, "tick_timeout").error == same.result().is_(504, "tick_timeout").error


def already_started(game):
    game("start")
    told = game("start").is_(409, "already_started")
    assert told.error == f"game '{game.id}' is open already; end it first, or choose another game_id"
    game("start", 3).is_(409, "already_started")


def stale(game):
    game("start", 5)
    game("tick", 5).is_(409, "stale_tick")
    game("tick", 9).is_(200)  # gaps are fine
    game("tick", 10, "raise").is_(500, "actor_error")
    game("tick", 10).is_(200)  # what was not answered with 200 may come again
    told = game("tick", 7).is_(409, "stale_tick")
    assert told.error == "tick_id 7 comes after 10, which was answered; each tick needs a greater one"
    game("tick", "00011").is_(200)  # leading zeros are fine
    game("tick").is_(200)  # and so is none
    game("tick", 11).is_(409, "stale_tick")


def late_duplicate_of_a_start(game):
    game("start", 3)
    game("end", 8).is_(200)
    game("start", 3).is_(409, "stale_tick")
    game("start", 9).is_(200)
    game("tick", 10).is_(200)


def full(game):
    games = [game, *(game.another() for _ in range(3))]
    for each in games:
        each("start").is_(200)
    told = game.another()("start").is_(503, "full")
    assert told.headers["retry-after"] == "1" and told.error == "all 4 places are taken; try again"
    games[1]("end").is_(200)
    game.another()("start").is_(200)


def id_used_again(game):
    for _ in range(3):
        game("start").is_(200)
        assert game("tick", body="do x").body == f"{game.id} 1 x".encode()
        game("end").is_(200)


def constructor_fails(game):
    told = game("start", 1, "raise").is_(500, "actor_error")
    assert told.error == "the actor failed; the server's log says why"
    assert game.server.has_said("secret of the constructor")
    game("tick", 2).is_(404, "unknown_game")
    for _ in range(5):  # its place is free again
        game("start", 1, "raise").is_(500, "actor_error")
    game("start", 1).is_(200)


def constructor_is_late(game):
    starting = game.later("start", 1, "sleep 9")
    same, waiting, other = game.later("start", 1), game.later("tick", 2), game.later("start", 2)
    other.result().is_(409, "already_started")
    starting.result().is_(504, "tick_timeout")
    same.result().is_(504, "tick_timeout")
    waiting.result().is_(404, "unknown_game")
    game("start", 1).is_(200)


def constructor_takes_its_time(game):
    starting = game.later("start", 1, "sleep 0.8")
    same, waiting = game.later("start", 1), game.later("tick", 2, "do x")
    starting.result().is_(200)
    same.result().is_(200, replayed=True)
    assert waiting.result().is_(200).body == f"{game.id} 1 x".encode()


def unknown(game):
    for kind in ("tick", "end", "stop"):
        told = game(kind, 1).is_(404, "unknown_game")
        assert told.error == f"there is no game '{game.id}'; start it first"


def ended(game):
    for kind in ("end", "stop"):
        game("start").is_(200)
        game(kind).is_(200)
        told = game("tick").is_(410, "ended")
        assert told.error == f"game '{game.id}' has ended (by {kind}); start another"


def ended_while_waiting(game):
    game("start")
    running, waiting = game.later("end", body="sleep 0.8"), game.later("tick", 1)
    running.result().is_(200)
    waiting.result().is_(410, "ended")


def remembers_only_so_many(game):
    game("start", 1)
    game("end", 2)
    for other in (game.another() for _ in range(4)):
        other("start")
        other("end")
    game("end", 2).is_(404, "unknown_game")


def in_turn(game):
    game("start")
    futures = [game.later("tick", n, "sleep 1" if n == 1 else f"do {n}") for n in range(1, 6)]
    told = game("tick", 6).is_(429, "queue_full")
    assert told.headers["retry-after"] == "1" and told.error == f"4 requests of game '{game.id}' wait already"
    assert [future.result().body.split()[1:] for future in futures][1:] == [
        [b"2", b"2"],
        [b"3", b"3"],
        [b"4", b"4"],
        [b"5", b"5"],
    ]
    game("tick", 6).is_(200)


def bad_body(game):
    game("start", 1, "bad").is_(400, "bad_body")
    game("tick").is_(404, "unknown_game")
    game("start", 1)
    for n in range(5):
        assert game("tick", 2 + n, "bad").is_(400, "bad_body").error == "expected better bytes"
    game("end", 9, "bad").is_(400, "bad_body")
    assert game("tick", 9, "do x").is_(200).body == f"{game.id} 7 x".encode()  # the game is open


def tick_fails(game):
    game("start", 0)
    game("tick", 1, "raise").is_(500, "actor_error")
    game("tick", 1, "own").is_(500, "actor_error")  # a time-out that is not the server's
    assert game("tick", 1, "do x").is_(200).body == f"{game.id} 3 x".encode()  # a retry runs anew
    assert game("tick", 2, "sleep 9").is_(504, "tick_timeout").error == "no answer within 1.5 s"
    game("tick", 2, "text").is_(500, "actor_error")
    assert game("tick", 2, "none").is_(200).body == b""
    told = game("tick", 3, "long").is_(500, "answer_too_large")
    assert told.error == "the actor's answer has 101 bytes, expected at most 100"
    assert game.server.has_said("a secret") and game.server.has_said("expected bytes or None, found str")


def fails_too_often(game):
    game("start", 0)
    assert not game("tick", 1, "raise").error.endswith("ended")
    game("tick", 1, "bad")  # is not counted
    game("tick", 1, "long")
    told = game("tick", 1, "raise").is_(500, "actor_error")
    assert told.error == "the actor failed; the server's log says why; the game has ended"
    assert game("tick", 1).is_(410, "ended").error == f"game '{game.id}' has ended (3 errors in a row); start another"
    assert game.ended_as() == ["error"]


def ends_whatever_happens(game):
    for kind, body, status, code in (
        ("end", "do", 200, None),
        ("stop", "do", 200, None),
        ("end", "raise", 500, "actor_error"),
        ("stop", "sleep 9", 504, "tick_timeout"),
        ("end", "long", 500, "answer_too_large"),
    ):
        game("start").is_(200)
        game(kind, body=body).is_(status, code)
        game("tick").is_(410, "ended")
    assert game.ended_as() == ["end", "stop", "end", "stop", "end"]


def auto(game):
    told = request(game.server, {"step_kind": "auto"}, b"do x").is_(200)
    assert told.body == b" 1 x" and told.headers["version"] == "blue@1000"
    assert game("auto", 3, "do x").is_(200).body == f"{game.id} 1 x".encode()
    game("auto", 3, "do x").is_(200)  # nothing is stored
    game("tick").is_(404, "unknown_game")
    game("auto", body="raise").is_(500, "actor_error")
    game("auto", body="bad").is_(400, "bad_body")
    running = [game.later("auto", body="sleep 1") for _ in range(4)]
    game("auto").is_(503, "full")
    game("start").is_(200)  # it has a count of its own
    for future in running:
        future.result().is_(200)


def malformed_headers(game):
    server = game.server
    for headers, code, sentence in (
        ({"game_id": "x"}, "bad_step_kind", "step_kind: expected start, tick, end, stop or auto, found none"),
        ({"step_kind": "Tick", "game_id": "x"}, "bad_step_kind", "found 'Tick'"),
        ({"step_kind": "tick"}, "bad_game_id", "game_id: expected 1 to 128 of A-Z a-z 0-9 . _ : -, found none"),
        ({"step_kind": "auto", "game_id": "a b"}, "bad_game_id", "found 'a b'"),
        ({"step_kind": "tick", "game_id": "a" * 129}, "bad_game_id", "found 'aaaaaaa"),
        ({"step_kind": "tick", "game_id": "x", "tick_id": ""}, "bad_tick_id", "found ''"),
        ({"step_kind": "tick", "game_id": "x", "tick_id": "-1"}, "bad_tick_id", "found '-1'"),
        ({"step_kind": "tick", "game_id": "x", "tick_id": "1.0"}, "bad_tick_id", "found '1.0'"),
        ({"step_kind": "tick", "game_id": "x", "tick_id": str(2**63)}, "bad_tick_id", "0 to 9223372036854775807"),
        ({"step_kind": "tick", "game_id": "x", "tick_id": "9" * 5000}, "bad_tick_id", "found '9999"),
        ({"step_kind": "tick", "game_id": "x", "game-id": "y"}, "bad_header", "game_id: given twice"),
    ):
        told = request(server, headers).is_(400, code)
        assert sentence in told.error, told
    assert len(request(server, {"step_kind": "x" * 99}).error) < 120
    request(server, {"step-kind": "start", "game-id": game.id, "game_id": game.id}).is_(200)  # dashes do, too
    request(server, {"step_kind": "tick", "game_id": game.id, "tick_id": str(2**63 - 1)}).is_(200)


def bodies(game):
    game("start")
    for encoding in ("gzip", "br", "identity, gzip"):
        told = game("tick", 1, "do", **{"content-encoding": encoding}).is_(415, "unsupported_encoding")
        assert told.error == f"content-encoding: expected none, found '{encoding}'"
    game("tick", 1, "do", **{"content-encoding": "identity"}).is_(200)
    game("tick", 2, "do " + "x" * 50).is_(200)
    told = game("tick", 3, b"x" * 1001).is_(413, "too_large")
    assert told.error == "expected a body of at most 1000 bytes"
    game("tick", 3).is_(200)


def idle_games_end(game):
    game("start", 0)
    game("tick", 1)
    time.sleep(4.2)
    assert game("tick", 2).is_(410, "ended").error == f"game '{game.id}' has ended (idle for 2.5 s); start another"
    assert game.ended_as() == ["idle"]
    game("tick", 1).is_(200, replayed=True)


def a_call_that_runs_is_not_idle_and_a_lost_connection_changes_nothing(game):
    game("start", 0)
    connection = http.client.HTTPConnection(game.server.host, game.server.port)
    connection.request("POST", "/step", b"sleep 0.8", {"game_id": game.id, "step_kind": "tick", "tick_id": "1"})
    time.sleep(0.2)
    connection.close()
    told = game("tick", 1).is_(200, replayed=True)  # joins the call, wherever it came from
    assert told.body.startswith(f"{game.id} 1".encode())


CASES = [
    start_replayed,
    last_replayed,
    last_of_an_ended_game_replayed,
    joined,
    joined_error,
    already_started,
    stale,
    late_duplicate_of_a_start,
    full,
    id_used_again,
    constructor_fails,
    constructor_is_late,
    constructor_takes_its_time,
    unknown,
    ended,
    ended_while_waiting,
    remembers_only_so_many,
    in_turn,
    bad_body,
    tick_fails,
    fails_too_often,
    ends_whatever_happens,
    auto,
    malformed_headers,
    bodies,
    idle_games_end,
    a_call_that_runs_is_not_idle_and_a_lost_connection_changes_nothing,
]


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.py").write_text(PROBE)
    run = make_run(folder, POLE)
    give_weights(run, "blue", 1000)
    options = ["--sessions", "4", "--tick-timeout", "1.5", "--idle-timeout", "2.5", "--max-answer", "100"]
    options += ["--max-body", "1000", "--settings", "word=hello", "--actor", f"{folder}/probe.py:SlowToStart"]
    with Served(run.path, *options) as server, ThreadPoolExecutor(8) as threads:
        yield server, threads


@pytest.mark.xdist_group("probe")
@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_a_request_of_a_game_is_answered_as_the_table_says(probe, case):
    game = Game(*probe)
    try:
        case(game)
    finally:
        game.tidy()
