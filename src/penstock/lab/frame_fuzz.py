"""Truncated and garbage frames: each must be refused with a reason, and the reader must go on.

Most damage leaves nothing that a correct decoder can accept. Two kinds may leave a valid event: a
Protobuf message that is cut between two fields, and random bytes. For these the reference is the
decoder of single events, which is built on other code (fastavro, upb, jsonschema-rs): batches must
refuse exactly what it refuses. Between damaged frames are good ones, which must be read.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.lab.lab_result import LabPlot, LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.order_events import order_events
from penstock.lab.order_schemas import V1, contract_of
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import end_offsets, partitions_of
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.errors import DecodeError
from penstock.serde.frame import PREFIX_BYTES
from penstock.serde.serializers import Deserializer

_QUESTION: Final = "Is every damaged frame refused, whatever the damage, without a crash?"
_CHUNK: Final = 20_000
_GOOD_EVERY: Final = 100
_UNKNOWN_ID: Final = 0x7F000000
_UNKNOWN_IDS: Final = 50  # each is one request to the registry
# What no payload can begin with: a negative length, field number 0, a byte that is not UTF-8.
_IMPOSSIBLE: Final = {
    SchemaType.AVRO: b"\x01",
    SchemaType.PROTOBUF: b"\x00\x00",  # after the message index: a tag with number 0
    SchemaType.JSON: b"\xff",
}
_GOOD: Final = "none"
_DAMAGES: Final = (
    "cut in the prefix", "cut after the prefix", "cut in the first field", "cut in the middle",
    "cut in the last field", "impossible payload", "random payload", "random tail",
    "unknown schema", "no frame",
)  # fmt: skip
_NEEDS_REFERENCE: Final = {"random payload", "random tail"}
_QUARANTINE_SUFFIX: Final = ".quarantine"


class _Frame(NamedTuple):
    """A value, and what was done to it."""

    damage: str
    content: bytes


class _Verdicts(NamedTuple):
    """What batches said about frames, by damage."""

    frames: Counter[str]
    refused: Counter[str]
    reasons: Counter[str]
    wrong: list[str]  # frames that were to be refused and were not, or the other way round


def run_fuzz(lab: LabRun) -> LabResult:
    """Damage frames of every language, and read them."""
    total = lab.sized(quick=30_000, default=1_050_000)
    live = lab.sized(quick=600, default=60_000)
    result = lab.result(_QUESTION, frames=total, frames_through_the_broker=live)
    per_language = (total - live) // len(SchemaType)
    sums = _Verdicts(Counter(), Counter(), Counter(), [])
    chunks = [(language, at) for language in SchemaType for at in range(0, per_language, _CHUNK)]
    with lab.platform.registry() as registry:
        for language, at in lab.steps("frames", chunks):
            frames = _good_frames(registry, language)
            rng = random.Random(f"{lab.seed}:{language}:{at}")
            count = min(_CHUNK, per_language - at)
            values = [_frame(rng, frames, language, number) for number in range(count)]
            _judge(registry, language, values, sums)
        for language in lab.steps("through the broker", tuple(SchemaType)):
            _through_broker(lab, result, registry, language, live // len(SchemaType), sums)
    _report(result, sums)
    return result


def _report(result: LabResult, sums: _Verdicts) -> None:
    good, read = sums.frames[_GOOD], sums.frames[_GOOD] - sums.refused[_GOOD]
    damaged = sums.frames.total() - good
    refused = sums.refused.total() - sums.refused[_GOOD]
    result.claim(
        "every damaged frame is refused, but for those that are valid events by chance",
        f"{refused:,} of {damaged:,} refused, {damaged - refused:,} valid,"
        f" {len(sums.wrong)} judged wrongly {'; '.join(sums.wrong[:3])}".rstrip(),
        not sums.wrong,
    )
    result.claim("every good frame among them is read", f"{read:,} of {good:,}", read == good)
    result.claim(
        "every kind of damage occurred", f"{len(sums.frames) - 1} of {len(_DAMAGES)}",
        set(sums.frames) == {_GOOD, *_DAMAGES},
    )  # fmt: skip
    rows = [(name, f"{sums.frames[name]:,}", f"{sums.refused[name]:,}") for name in _DAMAGES]
    result.table("Damage", ("damage", "frames", "refused"), rows)
    result.table("Why frames were refused", ("reason", "frames"), sums.reasons.most_common())
    plot = {name: [(0, count)] for name, count in sums.reasons.most_common()}
    result.plots.append(LabPlot("Refused frames", "frames", plot))
    result.numbers |= {
        "damaged": damaged, "refused": refused, "valid": damaged - refused, "good": good,
        "read": read,
    }  # fmt: skip


def _judge(
    registry: Registry, language: SchemaType, frames: Sequence[_Frame], sums: _Verdicts
) -> int:
    """Read the frames as one batch and compare; how many were refused."""
    topic, contract = f"fuzz-{language}", contract_of(V1, language)
    many = BatchDeserializer(registry, topic, reader=contract)
    single = Deserializer(registry, topic, reader=contract, as_dicts=True)
    _, errors = many.deserialize_many([frame.content for frame in frames])
    rows = {error.row for error in errors}
    sums.reasons.update(str(error.reason) for error in errors)
    for row, frame in enumerate(frames):
        is_refused = row in rows
        sums.frames[frame.damage] += 1
        sums.refused[frame.damage] += is_refused
        if is_refused != _must_refuse(single, language, frame):
            verdict = "refused" if is_refused else "accepted"
            sums.wrong.append(f"{language}, {frame.damage}, {verdict}: {frame.content.hex()}")
    return len(rows)


def _must_refuse(single: Deserializer, language: SchemaType, frame: _Frame) -> bool:
    if frame.damage == _GOOD:
        return False
    is_cut = frame.damage.startswith("cut") and frame.damage != "cut in the prefix"
    if frame.damage in _NEEDS_REFERENCE or (is_cut and language is SchemaType.PROTOBUF):
        try:
            single.deserialize(frame.content)
        except DecodeError:
            return True
        return False
    return True


def _good_frames(registry: Registry, language: SchemaType) -> list[bytes]:
    serializer = BatchSerializer(registry, f"fuzz-{language}", contract_of(V1, language))
    return serializer.serialize_many(list(order_events(V1, 7, 50))).contents()


def _frame(rng: random.Random, frames: list[bytes], language: SchemaType, number: int) -> _Frame:
    frame = rng.choice(frames)
    if number % _GOOD_EVERY == 0:
        return _Frame(_GOOD, frame)
    damage = rng.choice(_DAMAGES)
    return _Frame(damage, _damaged(rng, frame, language, damage))


def _damaged(rng: random.Random, frame: bytes, language: SchemaType, damage: str) -> bytes:
    head, size = frame[:PREFIX_BYTES], len(frame)
    match damage:
        case "cut in the prefix":
            return frame[: rng.randrange(PREFIX_BYTES)]
        case "cut after the prefix":
            return head
        case "cut in the first field":
            return frame[: PREFIX_BYTES + rng.randrange(1, 20)]
        case "cut in the middle":
            return frame[: rng.randrange(PREFIX_BYTES + 20, size - 10)]
        case "cut in the last field":
            return frame[: size - rng.randrange(1, 11)]
        case "impossible payload":
            return head + _IMPOSSIBLE[language] + rng.randbytes(rng.randrange(1, 200))
        case "random payload":
            return head + rng.randbytes(rng.randrange(1, 600))
        case "random tail":
            kept = rng.randrange(PREFIX_BYTES, size)
            return frame[:kept] + rng.randbytes(rng.randrange(1, size - kept + 50))
        case "unknown schema":
            unknown = _UNKNOWN_ID + rng.randrange(_UNKNOWN_IDS)
            return b"\x00" + unknown.to_bytes(4, "big") + frame[PREFIX_BYTES:]
        case _:
            return bytes([rng.randrange(2, 256)]) + rng.randbytes(rng.randrange(300))


def _through_broker(
    lab: LabRun, result: LabResult, registry: Registry, language: SchemaType, count: int,
    sums: _Verdicts,
) -> None:  # fmt: skip
    """The same damage in a topic: the consumer goes on, and quarantine has what it refused."""
    topic = lab.platform.make_topic(f"fuzz-{language}", 2)
    rng = random.Random(f"{lab.seed}:{language}")
    good = _good_frames(registry, language)
    frames = [_frame(rng, good, language, number) for number in range(count)]
    refused = _judge(registry, language, frames, sums)
    with Producer(lab.platform.bootstrap, topic) as producer:
        producer.send_many([frame.content for frame in frames]).wait(60)
    read = 0
    with Consumer(
        lab.platform.bootstrap, topic, topic, registry=registry, value=contract_of(V1, language)
    ) as consumer:
        for batch in consumer.arrow_batches(idle_s=30):
            read += len(batch)
            if read + consumer.quarantined >= count:
                break
    with BlockingCluster(lab.platform.bootstrap) as cluster:
        partitions = cluster.run(partitions_of([topic + _QUARANTINE_SUFFIX]))
        quarantined = sum(cluster.run(end_offsets(partitions)).values())
    measured = f"{quarantined:,} of {refused:,} in quarantine, {read:,} of {count - refused:,} read"
    result.claim(
        f"{language}: a consumer quarantines what is refused and goes on", measured,
        (quarantined, read) == (refused, count - refused),
    )  # fmt: skip
