"""An Avro schema checked under FULL_TRANSITIVE against fifty versions, beside Python `avro`."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.figures import Figure, report
from penstock.schemas.caches import SchemaCache
from penstock.schemas.compatibility import Earlier, Level, check
from penstock.schemas.model import SchemaType, Source

VERSIONS = 50
FIELDS = 300
PEER_VERSIONS = 3  # the peer is linear in versions: measured on a few, told for all


def measure() -> Iterator[Figure]:
    """Cold: nothing parsed or compared before. Warm: the same check again, as a registry does."""
    texts = [json.dumps(version(number)) for number in range(VERSIONS)]
    proposed = json.dumps(version(VERSIONS))
    peer_ms = measure_peer(proposed, texts)
    cache = SchemaCache()
    cold_ms = measure_check(cache, proposed, texts)
    warm_ms = min(measure_check(cache, proposed, texts) for _ in range(5))
    another = json.dumps(version(VERSIONS + 1))
    next_ms = measure_check(cache, another, texts)
    note = f"peer told from {PEER_VERSIONS} versions"
    yield Figure("cold: < 1 000 ms", cold_ms, peer_ms, "ms", "<= 0.3", note)
    yield Figure("a new proposal, versions known: < 200 ms", next_ms, peer_ms, "ms", "<= 0.1", note)
    yield Figure("warm: < 200 ms", warm_ms, peer_ms, "ms", "<= 0.05", note)


def version(number: int) -> dict[str, Any]:
    """A record of 300 nested records; each version adds one optional field to one of them."""
    fields = []
    for index in range(FIELDS):
        inner: list[dict[str, Any]] = [
            {"name": "id", "type": "long"},
            {"name": "label", "type": ["null", "string"], "default": None},
        ]
        if index < number:
            inner.append({"name": f"added_{index}", "type": "int", "default": 0})
        record = {"type": "record", "name": f"Part{index}", "fields": inner}
        fields.append({"name": f"part_{index}", "type": record})
    return {"type": "record", "name": "Order", "namespace": "com.shop", "fields": fields}


def measure_check(cache: SchemaCache, proposed: str, texts: Sequence[str]) -> float:
    """Milliseconds for parsing all that is not known yet, and the check."""
    started = time.perf_counter()
    earlier = [
        Earlier(number, cache.parse(Source(SchemaType.AVRO, text)))
        for number, text in enumerate(texts, start=1)
    ]
    schema = cache.parse(Source(SchemaType.AVRO, proposed))
    verdict = check(Level.FULL_TRANSITIVE, schema, earlier, unreadable=cache.unreadable)
    assert verdict.is_compatible
    return (time.perf_counter() - started) * 1000


def measure_peer(proposed: str, texts: Sequence[str]) -> float:
    """Milliseconds that the Avro project's own Python library takes for the same."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import parse

    started = time.perf_counter()
    schema = parse(proposed)
    for text in texts[-PEER_VERSIONS:]:
        old = parse(text)
        for reader, writer in ((schema, old), (old, schema)):
            checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # avro has no types
            result = checker.get_compatibility(reader, writer)
            assert result.compatibility is SchemaCompatibilityType.compatible
    return (time.perf_counter() - started) * 1000 * len(texts) / PEER_VERSIONS


if __name__ == "__main__":
    report(measure(), __doc__)
