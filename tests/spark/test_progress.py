"""A stream's progress as a consumer group."""

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition
from penstock.spark import progress_group
from penstock.spark.planning import StreamPosition
from penstock.spark.progress_group import ProgressGroup

MakeTopic: TypeAlias = Callable[..., str]


def at(topic: str, offset: int) -> StreamPosition:
    return StreamPosition({TopicPartition(topic, 0): Offset(offset)}, {})


def test_the_last_position_is_what_the_group_shows(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    progress = ProgressGroup(f"group of {topic}", {"bootstrap.servers": bootstrap})
    for offset in (*range(100), 7):  # a stream may be set back
        progress.show(at(topic, offset))
    progress.wait()
    with BlockingCluster(bootstrap) as cluster:
        committed = cluster.run(committed_offsets(f"group of {topic}"))
    assert [row.offset for row in committed.values()] == [7]


class SlowCluster:
    """A cluster that responds when the test lets it."""

    def __init__(self) -> None:
        self.may_respond = threading.Event()
        self.called = threading.Event()
        self.count = 0

    def run(self, _: Any) -> None:
        self.count += 1
        self.called.set()
        assert self.may_respond.wait(30)


def test_a_stream_waits_for_no_commit_and_outdated_positions_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = SlowCluster()
    monkeypatch.setattr(progress_group, "cluster_for", lambda _: slow)
    progress = ProgressGroup("group", {})
    progress.show(at("orders", 0))
    assert slow.called.wait(30)
    for offset in range(1, 10):
        progress.show(at("orders", offset))  # returns immediately
    assert slow.count == 1
    slow.may_respond.set()
    progress.wait()
    assert slow.count == 2


def test_a_refused_commit_is_a_warning_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing:
        def run(self, _: Any) -> None:
            raise Refused(ErrorCode.group_authorization_failed, "not yours")

    monkeypatch.setattr(progress_group, "cluster_for", lambda _: Refusing())
    progress = ProgressGroup("group", {})
    with caplog.at_level(logging.WARNING):
        progress.show(at("orders", 1))
        progress.wait()
    assert "cannot commit the progress of group group" in caplog.text
    assert "not yours" in caplog.text


def test_a_stream_without_a_group_commits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("nothing must be committed")

    monkeypatch.setattr(progress_group, "cluster_for", refuse)
    progress = ProgressGroup(None, {})
    progress.show(at("orders", 1))
    progress.wait()
