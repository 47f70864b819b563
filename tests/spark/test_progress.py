"""How far a stream is, as others see it."""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition
from penstock.spark import connections
from penstock.spark.connections import Progress
from penstock.spark.planning import Position

MakeTopic: TypeAlias = Callable[..., str]


def at(topic: str, offset: int) -> Position:
    return Position({TopicPartition(topic, 0): Offset(offset)}, {})


def test_the_last_position_is_what_the_group_shows(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    shown = Progress(f"group of {topic}", {"bootstrap.servers": bootstrap})
    for offset in (*range(100), 7):  # a stream may be set back
        shown.show(at(topic, offset))
    shown.settle()
    with BlockingCluster(bootstrap) as cluster:
        found = cluster.run(committed_offsets(f"group of {topic}"))
    assert [one.offset for one in found.values()] == [7]


class Slow:
    """A cluster that answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = threading.Event()
        self.count = 0

    def run(self, _: Any) -> None:
        self.count += 1
        self.asked.set()
        assert self.may_answer.wait(30)


def test_nobody_waits_for_a_commit_and_what_was_overtaken_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    monkeypatch.setattr(connections, "cluster_apart", lambda properties: slow)
    shown = Progress("group", {})
    shown.show(at("orders", 0))
    assert slow.asked.wait(30)
    for offset in range(1, 10):
        shown.show(at("orders", offset))  # would not return
    assert slow.count == 1
    slow.may_answer.set()
    shown.settle()
    assert slow.count == 2


def test_a_refused_commit_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing:
        def run(self, _: Any) -> None:
            raise Refused(ErrorCode.group_authorization_failed, "not yours")

    monkeypatch.setattr(connections, "cluster_apart", lambda properties: Refusing())
    shown = Progress("group", {})
    with caplog.at_level(logging.WARNING):
        shown.show(at("orders", 1))
        shown.settle()
    assert "progress is not shown as group group" in caplog.text
    assert "not yours" in caplog.text


def test_a_stream_without_a_group_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(properties: object) -> None:
        raise AssertionError("nothing is to be committed")

    monkeypatch.setattr(connections, "cluster_apart", refuse)
    shown = Progress(None, {})
    shown.show(at("orders", 1))
    shown.settle()
