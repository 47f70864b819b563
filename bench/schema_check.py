"""A check under FULL_TRANSITIVE against fifty versions, compared with Python `avro`.

Times are processor times: a check does nothing but compute, and other load does not count.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.figures import LIMIT, Figure, report
from penstock.schemas.compatibility import EarlierVersion, Level, check
from penstock.schemas.model import Policy, SchemaText, SchemaType
from penstock.schemas.parse_cache import SchemaCache, parse

VERSIONS = 50
FIELDS = 300
PEER_VERSIONS = 3  # Python avro takes linear time: measured on a few versions, scaled to all
COLD_MS_MAX = 1_000.0
WARM_MS_MAX = 200.0


def measure() -> Iterator[Figure]:
    """Cold: nothing is cached. Warm: the same check again, as in a registry."""
    peer_ms = measure_peer()
    for language, version in VERSIONS_IN.items():
        yield from measure_language(language, version, peer_ms)


def measure_language(
    language: SchemaType, version: Callable[[int], str], peer_ms: float
) -> Iterator[Figure]:
    """Cold, warm, and a new proposal to known versions, in one language."""
    parse(SchemaText(language, SMALL[language]))  # loads the parser without caching these schemas
    texts = [version(number) for number in range(VERSIONS)]
    cache = SchemaCache()
    cold_ms = measure_check(cache, language, version(VERSIONS), texts)
    warm_ms = min(measure_check(cache, language, version(VERSIONS), texts) for _ in range(5))
    next_ms = measure_check(cache, language, version(VERSIONS + 1), texts)
    if language is SchemaType.AVRO:
        note = f"Python avro is measured on {PEER_VERSIONS} versions"
        yield Figure(
            "Avro, cold, compared with Python avro", cold_ms, peer_ms, "ms", "<= 0.3", note
        )
        yield Figure(
            "Avro, warm, compared with Python avro", warm_ms, peer_ms, "ms", "<= 0.05", note
        )
    name = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}[language]
    yield Figure(f"{name}, cold, limit 1 s", cold_ms, COLD_MS_MAX, "ms", "<= 1.0", "", LIMIT)
    yield Figure(f"{name}, warm, limit 200 ms", warm_ms, WARM_MS_MAX, "ms", "<= 1.0", "", LIMIT)
    what = f"{name}, a new proposal to known versions, limit 200 ms"
    yield Figure(what, next_ms, WARM_MS_MAX, "ms", "<= 1.0", "", LIMIT)


def avro_version(number: int) -> str:
    """A record of 300 nested records; each version adds an optional field to one of them."""
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
    return json.dumps(
        {"type": "record", "name": "Order", "namespace": "com.shop", "fields": fields}
    )


def protobuf_version(number: int) -> str:
    """The same as messages."""
    lines = ['syntax = "proto3";', "package com.shop;", "message Order {"]
    for index in range(FIELDS):
        added = f"int32 added_{index} = 3;" if index < number else ""
        lines.append(f"message Part{index} {{ int64 id = 1; string label = 2; {added} }}")
        lines.append(f"Part{index} part_{index} = {index + 1};")
    return "\n".join([*lines, "}"])


def json_version(number: int) -> str:
    """The same as objects, for the lenient policy: the strict policy refuses these changes."""
    properties = {}
    for index in range(FIELDS):
        inner: dict[str, Any] = {"id": {"type": "integer"}, "label": {"type": ["null", "string"]}}
        if index < number:
            inner[f"added_{index}"] = {"type": "integer"}
        properties[f"part_{index}"] = {"type": "object", "properties": inner}
    return json.dumps({"title": "Order", "type": "object", "properties": properties})


VERSIONS_IN = {
    SchemaType.AVRO: avro_version,
    SchemaType.PROTOBUF: protobuf_version,
    SchemaType.JSON: json_version,
}
SMALL = {
    SchemaType.AVRO: '"string"',
    SchemaType.PROTOBUF: 'syntax = "proto3"; message M {}',
    SchemaType.JSON: "{}",
}


def measure_check(
    cache: SchemaCache, language: SchemaType, proposed: str, texts: Sequence[str]
) -> float:
    """Milliseconds for the check, including the parsing of schemas that are not cached."""
    started = time.process_time()
    earlier = [  # stored schemas were checked when they were registered
        EarlierVersion(number, cache.parse(SchemaText(language, text), strict=False))
        for number, text in enumerate(texts, start=1)
    ]
    schema = cache.parse(SchemaText(language, proposed))
    result = check(
        Level.FULL_TRANSITIVE,
        schema,
        earlier,
        Policy.LENIENT,
        incompatibilities=cache.incompatibilities,
    )
    assert result.is_compatible
    return (time.process_time() - started) * 1000


def measure_peer() -> float:
    """Milliseconds that the Python library of Apache Avro takes for the same check."""
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
    from avro.schema import parse as parse_avro

    started = time.process_time()
    schema = parse_avro(avro_version(VERSIONS))
    for number in range(VERSIONS - PEER_VERSIONS, VERSIONS):
        old = parse_avro(avro_version(number))
        for reader, writer in ((schema, old), (old, schema)):
            checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]  # avro has no types
            outcome = checker.get_compatibility(reader, writer)
            assert outcome.compatibility is SchemaCompatibilityType.compatible
    return (time.process_time() - started) * 1000 * VERSIONS / PEER_VERSIONS


if __name__ == "__main__":
    report(measure(), __doc__, peer="Python avro")
