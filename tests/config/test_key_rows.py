"""The values that a key accepts, and the error for those it does not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.broker_keys import BROKER_KEYS, GROUP_KEYS
from penstock.config.key_rows import Key, Value, ValueType, write_value
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.errors import ErrorCode, Refused

ALL_KEYS = [*TOPIC_KEYS.values(), *BROKER_KEYS.values(), *GROUP_KEYS.values()]


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_a_default_is_valid_for_its_key(key: Key) -> None:
    text = key.default_text()
    if text is not None and key.default != ():
        assert key.parse(text) == key.default


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_every_key_is_documented(key: Key) -> None:
    assert key.doc.endswith(".")


def test_every_synonym_is_a_broker_key() -> None:
    for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        assert all(str(synonym) in BROKER_KEYS for synonym in key.synonyms)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "1" * 4000),
        ("segment.bytes", "1048575"),
        ("segment.bytes", "2147483648"),
        ("preallocate", "yes"),
        ("cleanup.policy", "compact,purge"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.insync.replicas", "0"),
        ("leader.replication.throttled.replicas", "0"),
        ("remote.storage.enable", "true"),
    ],
)
def test_an_invalid_value_is_refused_with_the_name_of_its_key(name: str, text: str) -> None:
    with pytest.raises(Refused) as refused:
        TOPIC_KEYS[name].parse(text)
    assert refused.value.code is ErrorCode.invalid_config
    assert name in refused.value.message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("preallocate", "TRUE", True),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("compression.gzip.level", "-1", -1),
    ],
)
def test_a_value_is_read_as_kafka_reads_it(name: str, text: str, value: Value) -> None:
    assert TOPIC_KEYS[name].parse(text) == value


@settings(deadline=None, max_examples=200)
@given(key=st.sampled_from(ALL_KEYS), text=st.text(max_size=30))
def test_any_text_is_a_value_or_refused(key: Key, text: str) -> None:
    try:
        value = key.parse(text)
    except Refused:
        return
    written = write_value(value)
    if key.value_type is not ValueType.STRING:
        assert written is not None
        assert key.parse(written) == value
