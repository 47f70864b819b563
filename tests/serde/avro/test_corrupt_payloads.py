"""Mutated payloads: refused where fastavro refuses, and where it ought to; never a crash.

fastavro is not asked about what it lets pass by design (a boolean of 7, an int of 40 bits, a
negative length), nor about counts that were blown up: there it reads for a very long time, or takes
all the memory there is. A payload that was only cut off is safe to ask about.
"""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.avro.read_program import AvroFault as Fault
from penstock.schemas.avro.tree import AvroType
from penstock.serde.avro.batch import AvroBatchDecoder

SEEDS = st.integers(0, 2**32)
RAISED = (EOFError, ValueError, IndexError, OverflowError)  # by fastavro
REFUSED_BY_BOTH = {Fault.TRAILING, Fault.UTF8}


def mutated(chance: random.Random, payload: bytes) -> bytes:
    """Cut off, made longer, a byte changed, a number blown up, a byte lost, or anything."""
    content = bytearray(payload)
    place = chance.randrange(len(content) + 1)
    match chance.randrange(6):
        case 0:
            del content[place:]
        case 1:
            content += chance.randbytes(chance.randint(1, 3))
        case 2:
            content[place : place + 1] = bytes([chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))])
        case 3:
            content[place : place + 1] = b"\xff" * chance.randint(1, 10) + b"\x01"
        case 4:
            del content[place : place + 1]
        case _:
            return chance.randbytes(chance.randint(0, 40))
    return bytes(content)


@given(seed=SEEDS)
@settings(max_examples=250, deadline=None)
def test_mutated_payloads_are_refused_as_fastavro_refuses_them(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record() if seed % 4 else maker.schema())
    sound = oracle.encoded(schema, [maker.value(schema.root) for _ in range(16)])
    payloads = [mutated(maker.random, each) if row % 2 else each for row, each in enumerate(sound)]
    batch, errors = AvroBatchDecoder(schema).decode(*oracle.joined(payloads))
    batch.validate(full=True)
    rows = zip(sound, payloads, oracle.rows_of(batch), errors, strict=True)
    for whole, payload, row, code in rows:
        wrong = Fault(code)
        if wrong is Fault.OK:
            wanted = oracle.expected(schema.root, oracle.read(payload, schema))
            assert row == (wanted if schema.root.kind is AvroType.RECORD else {"value": wanted})
            continue
        assert not any(one is not None for one in row.values())
        is_cut_off = wrong is Fault.TRUNCATED and whole.startswith(payload)
        if is_cut_off or wrong in REFUSED_BY_BOTH:
            with pytest.raises(RAISED):
                oracle.read(payload, schema)


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_payload_is_as_wrong_for_a_reader_of_nothing_unless_only_its_content_is(
    seed: int, oracle: Any
) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record())
    payloads = oracle.encoded(schema, [maker.value(schema.root) for _ in range(16)])
    buffer = oracle.joined([mutated(maker.random, each) for each in payloads])
    _, errors = AvroBatchDecoder(schema).decode(*buffer)
    _, structural = AvroBatchDecoder(schema, columns=[]).decode(*buffer)
    for code, skipped in zip(errors, structural, strict=True):
        if code == Fault.OK:
            assert skipped == Fault.OK
        if code in (
            Fault.TRUNCATED,
            Fault.TRAILING,
            Fault.LENGTH,
            Fault.ITEMS,
            Fault.UNION,
        ):
            assert skipped == code


@given(payload=st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_text_is_what_python_takes_for_utf8(payload: bytes, oracle: Any) -> None:
    schema = oracle.parse("string")
    framed = bytes([len(payload) * 2]) + payload
    batch, errors = AvroBatchDecoder(schema).decode(*oracle.joined([framed]))
    try:
        text: str | None = payload.decode()
    except UnicodeDecodeError:
        text = None
    assert batch.column("value").to_pylist() == [text]
    assert errors.tolist() == [Fault.UTF8 if text is None else Fault.OK]


@pytest.mark.parametrize(
    ("kind", "payload", "wrong"),
    [
        ("int", b"\x80\x80\x80\x80\x10", Fault.INT_RANGE),
        ("int", b"\xff\xff\xff\xff\x0f", Fault.OK),
        ("long", b"\xff" * 9 + b"\x01", Fault.OK),
        ("long", b"\xff" * 9 + b"\x02", Fault.VARINT),
        ("long", b"\xff" * 10 + b"\x01", Fault.VARINT),
        ("long", b"\xff" * 9, Fault.TRUNCATED),
        ("bytes", b"\x01", Fault.LENGTH),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", Fault.TRUNCATED),
        ("string", b"\x06\xed\xa0\x80", Fault.UTF8),
        ("boolean", b"\x02", Fault.BOOLEAN),
        (["null", "int"], b"\x04", Fault.UNION),
        (["null", "int"], b"\x01", Fault.UNION),
        (["null", "int", "string"], b"\x06", Fault.UNION),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", Fault.ENUM),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", Fault.ENUM),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", Fault.TRUNCATED),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", Fault.TIME_RANGE),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f", Fault.ITEMS),
        ({"type": "array", "items": "int"}, b"\x80\x01\x02", Fault.TRUNCATED),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x02", Fault.LENGTH),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x02\x64",
            Fault.DECIMAL_RANGE,
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x9d", Fault.OK),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x00", Fault.OK),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 38},
            b"\x22\x01" + b"\x00" * 16,
            Fault.DECIMAL_RANGE,
        ),
    ],
)
def test_an_invalid_value_is_reported_with_its_reason(
    kind: Any, payload: bytes, wrong: Fault, oracle: Any
) -> None:
    batch, errors = AvroBatchDecoder(oracle.parse(kind)).decode(*oracle.joined([payload]))
    assert [Fault(code) for code in errors] == [wrong]
    assert (batch.column("value").null_count == 1) == (wrong is not Fault.OK)


def test_every_reason_is_put_into_words() -> None:
    assert len({wrong.reason for wrong in Fault}) == len(Fault)
