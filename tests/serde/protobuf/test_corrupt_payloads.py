"""Payloads as anybody may write them, whole and mutated: read and refused as upb does."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.protobuf.read_program import ProtobufFault as Fault
from penstock.serde.protobuf.batch import ProtobufBatchDecoder

MAY_BE_OVERWRITTEN = (
    Fault.TIME_RANGE,
    Fault.UTF8,
)  # so that upb, which looks later, accepts
SEEDS = st.integers(0, 2**32)


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
            content[place : place + 1] = bytes([chance.choice((0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF))])
        case 3:
            content[place : place + 1] = b"\xff" * chance.randint(1, 10) + b"\x01"
        case 4:
            del content[place : place + 1]
        case _:
            return chance.randbytes(chance.randint(0, 40))
    return bytes(content)


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_payloads_are_read_and_refused_as_upb_does(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    message_type = maker.message_type()
    descriptor = message_type.DESCRIPTOR
    sound = [maker.payload(descriptor) for _ in range(24)]
    payloads = [mutated(maker.random, each) if row % 2 else each for row, each in enumerate(sound)]
    batch, errors = ProtobufBatchDecoder(message_type).decode(*oracle.joined(payloads))
    nothing = dict.fromkeys(batch.schema.names)
    for payload, row, code in zip(payloads, oracle.rows_of(batch), errors, strict=True):
        wanted = oracle.read(message_type, payload)
        if code in MAY_BE_OVERWRITTEN and payload not in sound:
            wanted = None
        assert (code == Fault.OK) == (wanted is not None), (
            payload,
            Fault(code).reason,
        )
        assert row == (nothing if wanted is None else wanted), payload


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_columns_are_the_same_when_others_are_not_wanted(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    message_type = maker.message_type()
    names = [field.name for field in message_type.DESCRIPTOR.fields]
    columns = maker.random.sample(names, maker.random.randint(0, len(names)))
    payloads = [maker.payload(message_type.DESCRIPTOR) for _ in range(16)]
    batch, errors = ProtobufBatchDecoder(message_type, columns).decode(*oracle.joined(payloads))
    assert batch.num_rows == len(payloads)
    for payload, row, code in zip(payloads, oracle.rows_of(batch), errors, strict=True):
        wanted = oracle.read(message_type, payload, columns)
        if wanted is not None:
            assert (code, row) == (Fault.OK, wanted)
