"""Every rank can report its stack while its main thread is blocked, and only to the run's root."""

import json
import socket
import threading
import time

import pytest

from arena.system.stack_dump import StackCollector, StackReporter


@pytest.fixture
def stack_collector():
    stack_collector = StackCollector("localhost")
    yield stack_collector
    stack_collector.close()


def asked(stack_collector, ranks, patience=5.0):
    """Request reports until so many ranks have had the time to connect."""
    until = time.monotonic() + 10
    while len(stack_collector._ranks) < ranks and time.monotonic() < until:
        time.sleep(0.01)
    return stack_collector.ask(patience)


def test_a_rank_says_what_it_waits_for_and_where_it_is(stack_collector):
    StackReporter(stack_collector.address, 3, True, lambda: "waits for rank 7")
    for _ in range(2):
        said = asked(stack_collector, 1)
        assert list(said) == [3]
        assert said[3].action == "waits for rank 7"
        assert "test_a_rank_says_what_it_waits_for_and_where_it_is" in said[3].stack


def test_a_rank_that_is_stopped_costs_its_answer_and_no_more_time_than_given(stack_collector):
    silence = threading.Event()
    StackReporter(stack_collector.address, 1, True, lambda: str(silence.wait(30)))
    StackReporter(stack_collector.address, 2, True, lambda: "does not wait")
    began = time.monotonic()
    said = asked(stack_collector, 2, patience=0.5)
    silence.set()
    assert list(said) == [2]
    assert time.monotonic() - began < 10


def test_measurements_do_not_wait_and_do_not_get_between_a_stack_and_its_request(stack_collector):
    StackReporter(stack_collector.address, 1, True, lambda: "waits", lambda: {"waiting": 0.5})
    silence = threading.Event()
    StackReporter(stack_collector.address, 2, True, str, lambda: {"waiting": silence.wait(30)})
    asked(stack_collector, 2)
    for _ in range(2):
        stack_collector.request_activity()
        time.sleep(0.1)
        assert stack_collector.received_activity() == {1: {"waiting": 0.5}}
    stack_collector.request_activity()
    silence.set()
    assert stack_collector.ask(5.0)[1].action == "waits", "the measurements before are passed over"


def test_a_stranger_is_no_rank(stack_collector):
    with socket.create_connection(("127.0.0.1", stack_collector.address.port)) as stranger:
        stranger.sendall(json.dumps(["guess", 1]).encode() + b"\n")
        assert stranger.recv(1) == b"", "it was let in"
    assert stack_collector.ask(0.1) == {}


def test_where_the_root_cannot_be_reached_the_run_goes_on(stack_collector):
    StackReporter(stack_collector.address._replace(host="no.such.host.invalid"), 1, False, str)
    assert stack_collector.ask(0.1) == {}
