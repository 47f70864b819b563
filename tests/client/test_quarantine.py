"""Quarantine headers, listing and redriving; and the commands for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from penstock.cli.main import COMMANDS, build
from penstock.client.consumer import Consumer
from penstock.client.event import Event, RecordReader
from penstock.client.producer import Producer
from penstock.client.quarantine import (
    PREFIX,
    REDRIVEN,
    DecodeFailure,
    OriginalRecord,
    QuarantinedRecord,
    quarantine_topic,
    read_marker,
    read_quarantined,
    redriven_headers,
    write_envelope,
    write_marker,
)
from penstock.client.redrive import RedriveSelection, redrive
from penstock.client.registry import Registry
from penstock.errors import Malformed
from penstock.link.settings import connection_settings
from penstock.model import Millis, Offset
from penstock.schemas.model import SchemaText, SchemaType
from penstock.schemas.readers import Reader
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, Reason
from penstock.serde.frame import SchemaId, Side, write_prefix
from tests.support.apache_kafka import PeerUnavailableError
from tests.support.guarded_kafka import guarded_kafka

MakeTopic = Callable[..., str]
TEXTS = st.text(max_size=20)
HEADER_NAMES = TEXTS.filter(lambda name: not name.startswith(PREFIX))  # reserved
ORIGINS = st.builds(
    OriginalRecord,
    TEXTS,
    st.integers(0, 100),
    st.integers(0, 2**60).map(Offset),
    st.integers(-1, 2**60).map(Millis),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(HEADER_NAMES, st.none() | st.binary(max_size=5))),
)
FAILURES = st.builds(
    DecodeFailure, st.sampled_from(Reason), TEXTS, st.sampled_from(Side), st.none() | TEXTS,
    st.none() | TEXTS, st.none() | TEXTS, TEXTS, st.integers(-1, 2**60).map(Millis),
    st.integers(0, 5),
)  # fmt: skip


@given(ORIGINS, FAILURES)
def test_quarantine_headers_round_trip(origin: OriginalRecord, failure: DecodeFailure) -> None:
    headers = write_envelope(origin, failure)
    record = read_quarantined(origin.key, origin.value, headers)
    assert record == QuarantinedRecord(origin, failure)


def test_an_event_counts_how_often_it_was_sent_back() -> None:
    origin = OriginalRecord("t", 1, Offset(2), Millis(3), b"k", b"v", [("a", b"b")])
    failure = DecodeFailure(Reason.UNKNOWN_SCHEMA, "no id 9", Side.VALUE)
    record = QuarantinedRecord(origin, failure)
    for attempts in (1, 2):
        again = origin._replace(headers=redriven_headers(record))
        record = read_quarantined(b"k", b"v", write_envelope(again, failure))
        assert record.failure.attempts == attempts
        assert record.origin.headers == [("a", b"b")]


@pytest.mark.parametrize("torn", ["topic", "offset", "side"])
def test_invalid_quarantine_headers_are_reported(torn: str) -> None:
    origin = OriginalRecord("t", 1, Offset(2), Millis(3), None, None)
    headers = write_envelope(origin, DecodeFailure(Reason.UNDECODABLE, "", Side.KEY))
    missing = [(name, value) for name, value in headers if name != PREFIX + torn]
    with pytest.raises(Malformed, match=torn):
        read_quarantined(None, None, missing)
    if torn != "topic":
        broken = [(name, b"?" if name == PREFIX + torn else value) for name, value in headers]
        with pytest.raises(Malformed, match="is invalid"):
            read_quarantined(None, None, broken)


def test_a_marker_names_its_record() -> None:
    assert read_marker(write_marker(Offset(12), "orders")) == (12, "orders")
    assert read_marker([(REDRIVEN, b"12")]) == (12, None), "written by an earlier version"
    assert read_marker([("x", b"1")]) is None


def penstock(*words: str, given: bytes = b"") -> Result:
    result = CliRunner().invoke(build(list(COMMANDS)), list(words), input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_an_event_that_became_readable_is_sent_back_once(
    bootstrap: str, registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    # A new schema gets the last id; the one that is registered next, the id after it.
    fresh_schema = {"type": "fixed", "name": f"{topic.replace('-', '_')}_last", "size": 9}
    last = registry.register(f"{topic}-last", SchemaText(SchemaType.AVRO, json.dumps(fresh_schema)))
    coming = write_prefix(SchemaId(last.id + 1)) + b"\x02"
    with Producer(bootstrap, topic) as producer:
        for value in (b"unreadable", coming):
            producer.send(value, key=b"k", headers=[("h", b"x")]).result(30)
    with (
        Registry(registry_url, unknown_s=0) as fresh,
        Consumer(bootstrap, topic, topic, registry=fresh) as consumer,
    ):
        while consumer.quarantined < 2:
            assert consumer.take(wait_s=1) == []
    reach = ("-b", bootstrap)
    listed = json.loads(penstock("quarantine", "list", topic, "--json", *reach).stdout)
    assert [one["reason"] for one in listed] == ["not_framed", "unknown_schema"]
    assert "ORIGIN" in penstock("quarantine", "list", topic, *reach).stdout
    shown = penstock("quarantine", "show", topic, listed[1]["position"], *reach).stdout
    assert "schema id" in shown
    assert penstock("quarantine", "show", topic, "9:9", *reach).exit_code == 1
    sending = ("quarantine", "redrive", topic, *reach, "-r", registry_url)
    assert "0 would be sent back" in penstock(*sending).stdout
    late = {"type": "fixed", "name": topic.replace("-", "_"), "size": 1}
    registry.register(f"{topic}-new", SchemaText(SchemaType.AVRO, json.dumps(late)))
    assert "1 would be sent back" in penstock(*sending).stdout
    assert "0 would be" in penstock(*sending, "--reason", "not_framed").stdout
    assert "1 sent back" in penstock(*sending, "--apply").stdout
    assert "0 sent back" in penstock(*sending, "--apply").stdout
    with Consumer(bootstrap, topic, f"{topic}-after") as consumer:
        events = list(consumer.events(idle_s=1.5))
    assert [event.value for event in events] == [b"unreadable", coming, coming]
    assert events[2].headers == (("h", b"x"), (f"{PREFIX}attempts", b"1"))
    left = json.loads(penstock("quarantine", "list", topic, "--json", *reach).stdout)
    assert [one["reason"] for one in left] == ["not_framed"]
    everything = penstock("quarantine", "list", topic, "--all", "--json", *reach).stdout
    assert len(json.loads(everything)) == 2


class Unreadable(NamedTuple):
    """A topic whose events three groups cannot read until their reader is fixed."""

    topic: str
    fixed: Path
    penstock: Callable[..., Result]

    def values(self, bootstrap: str, registry: Registry, topic: str = "") -> list[int]:
        group = f"{self.topic}-values-{uuid4()}"
        with Consumer(bootstrap, topic or self.topic, group, registry=registry) as consumer:
            return [event.value["id"] for event in consumer.events(idle_s=1.5)]


ID = {"name": "id", "type": "long"}
COUPON = {"name": "coupon", "type": "string"}


def number(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Number", "fields": fields})


@pytest.fixture
def unreadable(
    bootstrap: str, registry: Registry, registry_url: str, make_topic: MakeTopic, tmp_path: Path
) -> Unreadable:
    """Events 0 to 4 of the key k, which the groups a, b and c have all quarantined."""
    topic = make_topic()
    with Producer(bootstrap, topic, registry=registry, value=Contract(number(ID))) as producer:
        producer.send_many([{"id": one} for one in range(5)], keys=["k"] * 5).wait()
    broken = Contract(number(ID, COUPON), auto_register=False)
    for group in "abc":
        with Consumer(bootstrap, topic, group + topic, registry=registry, value=broken) as consumer:
            while consumer.quarantined < 5:
                assert consumer.take(wait_s=1) == []
    fixed = tmp_path / "fixed.avsc"
    fixed.write_text(number(ID, {**COUPON, "default": ""}))

    def command(*words: str) -> Result:
        given = ("quarantine", "redrive", topic, "-b", bootstrap, "-r", registry_url)
        return penstock(*given, "--reader", str(fixed), *words)

    return Unreadable(topic, fixed, command)


def test_an_event_quarantined_by_three_groups_is_sent_back_once(
    bootstrap: str, registry: Registry, unreadable: Unreadable
) -> None:
    assert "5 would be sent back" in unreadable.penstock().stdout
    assert "5 sent back" in unreadable.penstock("--apply").stdout
    assert unreadable.values(bootstrap, registry) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    assert "0 sent back" in unreadable.penstock("--apply").stdout
    listed = penstock("quarantine", "list", unreadable.topic, "--json", "-b", bootstrap).stdout
    assert json.loads(listed) == [], "each of the fifteen copies is marked"


def test_a_copy_quarantined_after_its_event_was_sent_back_is_not_sent(
    bootstrap: str, registry: Registry, unreadable: Unreadable
) -> None:
    assert "5 sent back" in unreadable.penstock("--apply").stdout
    broken = Contract(number(ID, COUPON), auto_register=False)
    with Consumer(
        bootstrap, unreadable.topic, f"late{unreadable.topic}", registry=registry, value=broken
    ) as consumer:
        while consumer.quarantined < 10:
            assert consumer.take(wait_s=1) == []
    assert "5 sent back" in unreadable.penstock("--apply").stdout, (
        "those at new offsets, and no more"
    )
    assert "0 sent back" in unreadable.penstock("--apply").stdout


def test_an_event_whose_key_has_a_newer_value_is_left_out_by_default(
    bootstrap: str, registry: Registry, unreadable: Unreadable
) -> None:
    contract = Contract(number(ID))
    with Producer(bootstrap, unreadable.topic, registry=registry, value=contract) as producer:
        producer.send({"id": 1000}, key="k").result(30)
    output = unreadable.penstock("--json").stdout
    assert [len(json.loads(output)[name]) for name in ("sent", "superseded")] == [0, 5]
    shown = unreadable.penstock("--apply").stdout
    assert "0 sent back" in shown
    assert "5 left out: the topic has a newer value of the key" in shown
    assert unreadable.values(bootstrap, registry) == [0, 1, 2, 3, 4, 1000]
    assert "5 sent back" in unreadable.penstock("--apply", "--include-superseded").stdout
    assert unreadable.values(bootstrap, registry) == [0, 1, 2, 3, 4, 1000, 0, 1, 2, 3, 4]


def test_events_are_sent_to_a_topic_for_one_group(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, unreadable: Unreadable
) -> None:
    retry = make_topic()
    to_a = ("--group", f"a{unreadable.topic}", "--to", retry, "--apply")
    assert "5 sent back" in unreadable.penstock(*to_a).stdout
    assert "0 sent back" in unreadable.penstock(*to_a).stdout
    assert unreadable.values(bootstrap, registry, retry) == [0, 1, 2, 3, 4]
    assert unreadable.values(bootstrap, registry) == [0, 1, 2, 3, 4]
    assert "0 would be" in unreadable.penstock("--group", "another").stdout
    listed = penstock("quarantine", "list", unreadable.topic, "--json", "-b", bootstrap).stdout
    assert len(json.loads(listed)) == 10, "the other groups' copies are left"
    assert "5 sent back" in unreadable.penstock("--group", f"b{unreadable.topic}", "--apply").stdout
    assert "0 sent back" in unreadable.penstock("--apply").stdout, "c has read them again with b"


def test_a_topic_without_quarantine_is_reported(bootstrap: str) -> None:
    result = penstock("quarantine", "list", "nothing", "-b", bootstrap)
    assert result.exit_code == 1
    assert "nothing was quarantined" in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.avsc", '{"type": "recor"}', "the reader's schema cannot be used"),
        ("mine.txt", '"string"', "unknown suffix"),
    ],
)
def test_redriving_with_an_invalid_reader_schema_fails_before_anything_is_read(
    bootstrap: str, registry: Registry, registry_url: str, make_topic: MakeTopic, tmp_path: Path,
    name: str, text: str, message: str,
) -> None:  # fmt: skip
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"unreadable").result(30)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        while consumer.quarantined < 1:
            assert consumer.take(wait_s=0.2) == []
    (tmp_path / name).write_text(text)
    words = (
        "redrive",
        topic,
        "-b",
        bootstrap,
        "-r",
        registry_url,
        "--reader",
        str(tmp_path / name),
    )
    refused = penstock("quarantine", *words)
    assert refused.exit_code == 1
    assert message in refused.stderr
    assert refused.stdout == ""


def test_a_consumer_whose_own_schema_is_unusable_quarantines_nothing(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, registry=registry, value=Contract('"string"')) as producer:
        producer.send("fine").result(30)
    invalid = Contract('{"type": "recor"}', auto_register=False)
    with (
        Consumer(bootstrap, topic, topic, registry=registry, value=invalid) as consumer,
        pytest.raises(ArgumentError, match="the reader's schema cannot be used"),
    ):
        consumer.take(1, wait_s=30)
    assert consumer.quarantined == 0


def test_quarantine_headers_name_the_reader(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"unreadable").result(30)
    reader = Reader("fraud-scorer", "7")
    with Consumer(bootstrap, topic, topic, registry=registry, reader=reader) as consumer:
        while consumer.quarantined < 1:
            assert consumer.take(wait_s=1) == []
    with Consumer(bootstrap, quarantine_topic(topic), f"{topic}-look") as consumer:
        (event,) = consumer.events(idle_s=1.5)
    assert dict(event.headers)[f"{PREFIX}reader"] == b"fraud-scorer 7"
    assert (
        read_quarantined(event.key, event.value, event.headers).failure.reader == "fraud-scorer 7"
    )


def test_connection_settings_are_reused_for_other_clients() -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
        "enable.ssl.certificate.verification": True,
        "client.id": "me",
        "max.poll.interval.ms": 10_000,
        "auto.offset.reset": "latest",
    }
    assert connection_settings(settings).keys() == settings.keys() - {
        "max.poll.interval.ms",
        "auto.offset.reset",
    }
    assert connection_settings(None) == {}


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_quarantine_is_created_and_written_with_the_consumers_login(
    tmp_path: Path, registry: Registry
) -> None:
    try:
        with guarded_kafka(tmp_path) as guarded:
            there, login = guarded.scram_over_tls, guarded.properties
            admin = AdminClient({"bootstrap.servers": there, **login})
            admin.create_topics([NewTopic("letters", 3)])["letters"].result(30)
            with Producer(there, "letters", settings=login) as producer:
                producer.send(b"unreadable").result(30)
            more = {**login, "max.poll.interval.ms": 60_000}
            with Consumer(there, "letters", "g", registry=registry, settings=more) as consumer:
                while consumer.quarantined < 1:
                    assert consumer.take(wait_s=1) == []
            made = admin.list_topics(timeout=30).topics[quarantine_topic("letters")]
            assert len(made.partitions) == 3, "as many as the topic's own, not the broker's default"
            put = quarantine_topic("letters")
            with Consumer(there, put, "look", settings=login) as consumer:
                (event,) = consumer.events(idle_s=3)
            assert event.value == b"unreadable"
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


def test_events_sent_back_by_a_concurrent_run_are_not_sent_again(
    bootstrap: str, registry: Registry, unreadable: Unreadable
) -> None:
    class Overtaken(RecordReader):
        """Another run sends everything back after this one has listed quarantine."""

        has_run = False

        def read(self, record: OriginalRecord) -> Event:
            if not self.has_run:
                self.has_run = True
                assert "5 sent back" in unreadable.penstock("--apply").stdout
            return super().read(record)

    reader = Overtaken(
        registry,
        value=Contract(unreadable.fixed, auto_register=False),
        key=None,
        framed_keys=False,
        as_dicts=True,
        plain_indexes=False,
    )
    selection = RedriveSelection(include_superseded=True)
    outcome = redrive(bootstrap, unreadable.topic, reader, selection, dry_run=False)
    assert outcome.sent == []
    assert unreadable.values(bootstrap, registry) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
