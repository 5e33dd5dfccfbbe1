"""Resistance of a server to lying and slow clients, garbage and too many connections, and access control."""

import asyncio
import contextlib
import http.client
import json
import random
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from arena.gateway.client import Address, Connection
from arena.launch import main
from benchmarks.tools.serving import Served
from benchmarks.tools.trained import POLE, give_weights, make_run

pytestmark = pytest.mark.tier("all")

GOOD = b'{"observation": [0, 0, 0, 0]}'
AUTO = b"POST /step HTTP/1.1\r\nhost: x\r\nstep_kind: auto\r\ncontent-length: %d\r\n\r\n%s" % (len(GOOD), GOOD)
HEAD = b"POST /step HTTP/1.1\r\nhost: x\r\nstep_kind: auto\r\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("limits"), POLE)
    give_weights(run, "blue", 1000)
    return run


@pytest.fixture(scope="module")
def bounded(run):
    """A server with place for 2 games, and so for 260 connections."""
    with Served(run.path, "--sessions", "2", "--body-timeout", "1", "--keep-alive", "3") as server:
        yield server


def connect(server):
    return socket.create_connection((server.host, server.port), timeout=20)


def exchange(server, *parts, pause=0.0):
    """Send parts of what may be a request; return all that comes until the server closes."""
    with connect(server) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        return read_all(connection)


def read_all(connection):
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            found += part
    return found


def code_of(told):
    return int(told[9:12]), json.loads(told.partition(b"\r\n\r\n")[2])["code"]


def status_of(connection):
    """Return the status of the next answer, all of which is read."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def works(server):
    """Hold that the next client is served."""
    with connect(server) as connection:
        connection.sendall(AUTO)
        assert status_of(connection) == 200


CLOSED = {
    "no HTTP": (b"hello\r\n\r\n", 400, "bad_http"),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), 400, "bad_http"),
    "another version": (b"GET /healthz HTTP/9.9\r\n\r\n", 400, "bad_http"),
    "an unknown method": (b"JUMP /step HTTP/1.1\r\nhost: x\r\n\r\n", 400, "bad_http"),
    "NUL in a header": (HEAD + b"game_id: a\x00b\r\n\r\n", 400, "bad_http"),
    "NUL in a header's name": (HEAD + b"gam\x00e_id: ab\r\n\r\n", 400, "bad_http"),
    "a bare line feed in the path": (b"GET /x\ny HTTP/1.1\r\n\r\n", 400, "bad_http"),
    "no text in the path": (b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", 400, "bad_http"),
    "two lengths": (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab", 400, "bad_http"),
    "a length below zero": (HEAD + b"content-length: -1\r\n\r\n", 400, "bad_http"),
    "a length that is no number": (HEAD + b"content-length: many\r\n\r\n", 400, "bad_http"),
    "a length beyond all numbers": (HEAD + b"content-length: %s\r\n\r\n" % (b"9" * 40), 400, "bad_http"),
    "length and chunks": (HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_http"),
    "chunks of garbage": (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", 400, "bad_http"),
    "a long path": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431, "header_too_large"),
    "a long header": (HEAD + b"x: " + b"a" * 20_000 + b"\r\n\r\n", 431, "header_too_large"),
    "many headers": (HEAD + b"a: b\r\n" * 4000 + b"\r\n", 431, "header_too_large"),
    "a head of one piece without an end": (HEAD + b"x: " + b"a" * 40_000, 431, "header_too_large"),
    "headers of one piece without an end": (HEAD + b"a: b\r\n" * 4000, 431, "header_too_large"),
    "a header without an end": (HEAD + b"x: " + b"a" * 2_000_000, 431, "header_too_large"),
    "trailers without an end": (
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 4000,
        431,
        "header_too_large",
    ),
    "1 GB announced": (HEAD + b"content-length: 1000000000\r\n\r\nabc", 413, "too_large"),
    "too much in chunks": (
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + (b"10000\r\n" + bytes(0x10000) + b"\r\n") * 40,
        413,
        "too_large",
    ),
    "too much at once": (HEAD + b"content-length: 3000000\r\n\r\n" + bytes(3_000_000), 413, "too_large"),
    "half a body": (HEAD + b"content-length: 100\r\n\r\nabc", 408, "slow_body"),
    "half a chunk": (HEAD + b"transfer-encoding: chunked\r\n\r\n64\r\nabc", 408, "slow_body"),
    "half a head": (HEAD, 408, "slow_body"),
    "silence": (b"", 408, "slow_body"),
}


@pytest.mark.xdist_group("bounded")
@pytest.mark.parametrize(("sent", "status", "code"), CLOSED.values(), ids=CLOSED)
def test_what_is_wrong_with_http_is_told_and_the_connection_closed(bounded, sent, status, code):
    began = time.monotonic()
    told = exchange(bounded, sent)
    assert code_of(told) == (status, code) and b"\r\nconnection: close\r\n" in told
    assert time.monotonic() - began < 10
    works(bounded)


@pytest.mark.xdist_group("bounded")
def test_slow_heads_and_bodies_are_cut_off_but_long_connections_live(bounded):
    told = exchange(bounded, *[bytes([byte]) for byte in HEAD], pause=0.05)  # a byte now and then is not enough
    assert code_of(told) == (408, "slow_body")
    told = exchange(bounded, HEAD + b"content-length: 100\r\n\r\n", *[b"x"] * 40, pause=0.05)
    assert code_of(told) == (408, "slow_body")
    with connect(bounded) as connection:
        for _ in range(4):  # longer than the limit of one request, each of which is fast
            connection.sendall(AUTO)
            assert status_of(connection) == 200
            time.sleep(0.6)
        began = time.monotonic()
        assert connection.recv(10) == b"" and time.monotonic() - began < 8  # idle for keep_alive


@pytest.mark.xdist_group("bounded")
def test_requests_in_a_row_are_answered_in_a_row(bounded):
    with connect(bounded) as connection:
        connection.sendall(AUTO * 50 + b"garbage\r\n\r\n")
        told = read_all(connection)
    assert told.count(b"HTTP/1.1 200 OK") >= 49 and told.count(b'{"action":') == told.count(b"HTTP/1.1 200 OK")
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD), GOOD)
    with connect(bounded) as connection:
        connection.sendall(chunked)
        assert status_of(connection) == 200
    told = exchange(bounded, AUTO.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b" 200 OK" in told and b"connection: close" in told
    told = exchange(bounded, HEAD + b"expect: 100-continue\r\ncontent-length: 1000000000\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 413"), "nothing is asked to be sent that will be refused"
    told = exchange(bounded, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 200") and b'{"live": true}' in told


@pytest.mark.xdist_group("bounded")
def test_a_connection_too_many_is_turned_away(bounded):
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(260):
            connection = stack.enter_context(connect(bounded))
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            held.append(connection)
        for connection in held:
            assert status_of(connection) == 200
        assert code_of(exchange(bounded, AUTO)) == (503, "full")
    until = time.monotonic() + 20
    while True:  # until the server has seen that the connections are closed
        with connect(bounded) as connection:
            connection.sendall(AUTO)
            if status_of(connection) == 200:
                return
        assert time.monotonic() < until, "closed connections still count"
        time.sleep(0.05)


def garbage(chance):
    """Return a request of which something is wrong, or seems so."""
    kind = chance.randrange(9)
    noise = chance.randbytes(chance.randrange(200))
    if kind == 0:
        return noise
    if kind == 1:
        return HEAD + b"content-length: %d\r\n\r\n" % chance.choice([0, 1, 10**9, 2**63, 2**64, 10**30]) + noise
    if kind == 2:
        return HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % chance.randrange(2**40) + noise
    if kind == 3:
        return b"POST /step HTTP/1.1\r\nhost: x\r\nstep_kind: tick\r\ngame_id: " + noise + b"\r\n\r\n"
    if kind == 4:
        return HEAD + b"tick_id: %d\r\n\r\n" % chance.choice([-1, 2**63, 10**300, 5])
    if kind == 5:
        body = bytearray(GOOD)
        for _ in range(chance.randrange(1, 6)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    if kind == 6:
        said = {"inputs": [{"name": "observation", "shape": chance.choice([[1, 4], [10**9, 4], [-1], 5, [[1]]])}]}
        said["inputs"][0] |= {
            "datatype": chance.choice(["FP32", "FP99", None]),
            "data": chance.choice([[0] * 4, [], {}]),
        }
        body = json.dumps(said).encode()
        return b"POST /v2/models/blue/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    if kind == 7:
        body = b'{"inputs": []}' + noise
        head = b"POST /v2/models/blue/infer HTTP/1.1\r\nhost: x\r\ninference-header-content-length: "
        return head + b"%d\r\ncontent-length: %d\r\n\r\n" % (chance.randrange(300), len(body)) + body
    data = bytearray(AUTO)
    for _ in range(chance.randrange(1, 10)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


@pytest.mark.xdist_group("bounded")
def test_ten_thousand_requests_of_garbage_leave_no_trace(bounded):
    statuses = set()

    async def one(chance):
        try:
            reader, writer = await asyncio.open_connection(bounded.host, bounded.port)
            writer.write(garbage(chance))
            if chance.random() < 0.9:
                writer.write_eof()  # half open; the others break off
                told = await asyncio.wait_for(reader.read(), 20)
                for status in re.findall(rb"HTTP/1\.1 (\d+)", told):
                    statuses.add(int(status))
                assert b"Traceback" not in told and b'File "' not in told
            writer.transport.abort()
        except ConnectionError:
            pass

    async def side(number):
        chance = random.Random(number)
        for _ in range(500):
            await one(chance)

    async def storm():
        await asyncio.gather(*(side(number) for number in range(20)))

    for _ in range(200):
        works(bounded)
    before = bounded.memory()
    asyncio.run(storm())
    works(bounded)
    assert statuses <= {200, 400, 404, 405, 408, 413, 415, 431, 503}, statuses
    assert bounded.memory() - before < 20e6
    assert "Traceback" not in bounded.errors() and bounded.process.poll() is None


def asked(url, body=None, method=None, context=None, **headers):
    request = urllib.request.Request(url, body, {n.replace("_", "-"): v for n, v in headers.items()}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_without_the_token_nothing_is_told_but_that_it_lives(run, tmp_path, capsys, monkeypatch):
    token = tmp_path / "token"
    assert main(["serve", str(run.path), "--host", "0.0.0.0"]) == 2
    assert "since 0.0.0.0 can be reached from other machines, found none" in capsys.readouterr().err
    for content in ("", "é"):
        token.write_text(content)
        assert main(["serve", str(run.path), "--token-file", str(token)]) == 2
        assert capsys.readouterr().err.startswith("error: token_file: ")
    token.write_text("s3cret\n")
    page = "http://localhost:3000"
    with Served(run.path, "--token-file", str(token), "--allow-origins", page, "--access-log") as server:
        step = f"{server.url}/step"
        for said in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
            status, headers, told = asked(step, GOOD, step_kind="auto", **said)
            assert (status, headers["www-authenticate"], json.loads(told)["code"]) == (401, "Bearer", "unauthorized")
        assert asked(f"{server.url}/metrics")[0] == asked(f"{server.url}/v2")[0] == 401
        assert asked(f"{server.url}/healthz")[0] == asked(f"{server.url}/readyz")[0] == 200
        assert asked(step)[0] == 405 and asked(f"{server.url}/x")[0] == 404  # path and method are looked at first
        status, headers, _ = asked(step, GOOD, step_kind="auto", authorization="bearer s3cret", origin=page)
        assert status == 200 and headers["access-control-allow-origin"] == page
        assert headers["access-control-expose-headers"] == "version, replayed"
        status, headers, told = asked(step, method="OPTIONS", origin=page)
        assert (status, told, headers["access-control-allow-methods"]) == (204, b"", "POST")
        assert {"game_id", "step-kind", "tick_id", "content-type"} <= set(
            headers["access-control-allow-headers"].split(", ")
        )
        status, headers, _ = asked(step, method="OPTIONS", origin="http://evil.example")
        assert status == 405 and headers["access-control-allow-origin"] is None
        assert main(["fake-gamecore", server.url, "--tick", GOOD.decode(), "--token-file", str(token)]) == 0
        monkeypatch.setenv("ARENA_TOKEN", "s3cret")
        assert main(["fake-gamecore", server.url, "--tick", GOOD.decode()]) == 0
        assert server.stop() == 0
        log = server.errors()
        assert re.search(r"127\.0\.0\.1 POST /step 200 \d+\.\d ms auto", log) and "s3cret" not in log
        assert re.search(r"127\.0\.0\.1 POST /step 401 \d+\.\d ms auto [0-9a-f]{16}\n", log)


def test_tls_is_spoken_where_there_is_a_certificate(run, tmp_path, capsys):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    line += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    assert main(["serve", str(run.path), "--tls-cert", str(cert)]) == 2
    assert "--tls-key: expected a file beside tls_cert, found none" in capsys.readouterr().err
    assert main(["serve", str(run.path), "--tls-cert", str(key), "--tls-key", str(key), "--port", "0"]) == 2
    assert "tls_cert: " in capsys.readouterr().err
    with Served(run.path, "--tls-cert", str(cert), "--tls-key", str(key), "--body-timeout", "1") as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=cert)
        assert asked(f"{server.url}/step", GOOD, context=context, step_kind="auto")[0] == 200
        plain = connect(server)
        plain.sendall(AUTO)
        read_all(plain)
        plain.close()
        with context.wrap_socket(connect(server), server_hostname="localhost") as connection:
            connection.sendall(HEAD + b"content-length: 9\r\n\r\nabc")
            assert code_of(read_all(connection)) == (408, "slow_body")
        assert asked(f"{server.url}/healthz", context=context)[0] == 200


def test_what_is_counted_is_read_by_prometheus(run):
    async def play(server):
        connection = Connection(Address.of(server.url))
        for kind, tick, body in (
            ("start", 0, b""),
            ("tick", 1, GOOD),
            ("tick", 1, GOOD),
            ("tick", 2, b"{"),
            ("end", 3, b""),
            ("auto", 4, GOOD),
        ):
            await connection.post("/step", {"game_id": "g", "step_kind": kind, "tick_id": str(tick)}, body)
        await connection.post("/step", {"game_id": "h", "step_kind": "start"})
        connection.break_off()

    with Served(run.path) as server:
        before = parsed(server)
        assert before["arena_gateway_sessions_total", ("end", "idle")] == 0
        asyncio.run(play(server))
        found = parsed(server)
    assert found["arena_gateway_sessions", ()] == 1 and found["arena_gateway_sessions_limit", ()] == 256
    assert found["arena_gateway_sessions_total", ("end", "end")] == 1
    assert found["arena_gateway_requests_total", ("kind", "tick", "status", "200")] == 2
    assert found["arena_gateway_requests_total", ("kind", "tick", "status", "400")] == 1
    assert found["arena_gateway_replayed_total", ()] == 1
    assert found["arena_gateway_tick_seconds_count", ()] == 3
    assert found["arena_gateway_batch_size_count", ("player", "blue")] == 2
    assert found["arena_gateway_forward_seconds_bucket", ("le", "10.0", "player", "blue")] == 2
    assert found["arena_gateway_version_info", ("player", "blue", "version", "1000")] == 1
    assert found["arena_gateway_connections", ()] >= 1 and found["arena_gateway_loop_lag_seconds", ()] >= 0
    assert found["process_resident_memory_bytes", ()] > 1e7


def parsed(server):
    status, headers, text = asked(f"{server.url}/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(text.decode()))
    names = {family.name for family in families}
    wanted = "sessions sessions_limit connections forward_queue loop_lag_seconds version_info versions_loaded requests "
    wanted += "replayed actor_errors reloads experience tick_seconds forward_seconds batch_size"
    assert {f"arena_gateway_{name}" for name in wanted.split()} <= names
    return {
        (sample.name, tuple(part for pair in sorted(sample.labels.items()) for part in pair)): sample.value
        for family in families
        for sample in family.samples
    }
