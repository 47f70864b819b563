"""Checks expensive schemas and prints the costs: `budget_worker.py LANGUAGE SEED COUNT`.

Each case runs in its own process, so that its peak of memory is that of its parsing and checks.
Prints one JSON object per line: the case, the seconds of processor time, the peak of memory above
that before the case, the characters of the result, and the kind of the first difference. The first
check of a case includes the parsing of both schemas. With `named` as LANGUAGE the cases are those
of `named_cases`.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from penstock.gate import check as gate
from penstock.gate.check import CheckOptions, check_pair
from penstock.gate.contracts import CompatibilitySettings, ContractVersion, GivenContracts
from penstock.gate.reader_breaks import find_reader_breaks
from penstock.gate.results import CheckResult
from penstock.schemas.compatibility import EarlierVersion, Level, check, incompatibility_messages
from penstock.schemas.model import (
    NO_IMPORTS,
    Imports,
    ParsedSchema,
    Reference,
    SchemaText,
    SchemaType,
)
from penstock.schemas.parse_cache import SchemaCache
from penstock.schemas.reader_break import reader_break_messages
from penstock.schemas.readers import Reader

CACHE = SchemaCache()
LAYERS = (3, 25)  # of types that use the layers below them
PRIMITIVES = ("int", "long", "string", "bytes", "double", "null")
SCALARS = ("int32", "int64", "string", "bytes", "double", "sint32")


class Case(NamedTuple):
    name: str
    language: SchemaType
    old: str
    new: str
    old_imports: Imports = NO_IMPORTS
    new_imports: Imports = NO_IMPORTS


def avro_case(seed: int) -> Case:
    """Records in layers; each uses some of the layers below it, and sometimes one above it."""
    random = Random(seed)
    layers = random.randint(*LAYERS)
    width = random.randint(1, 3)
    plan = [
        [
            [_avro_link(random, layer, layers, width) for _ in range(random.randint(1, 4))]
            for _ in range(width)
        ]
        for layer in range(layers)
    ]
    old, new = (_AvroWriter(plan, leaf).text() for leaf in random.choices(PRIMITIVES, k=2))
    return Case(f"avro {seed}", SchemaType.AVRO, old, new)


def _avro_link(random: Random, layer: int, layers: int, width: int) -> tuple[str, int, int]:
    kind = random.choice(("plain", "plain", "plain", "array", "map", "union", "optional"))
    if random.random() < 0.15:
        return "optional", random.randrange(layers), random.randrange(width)  # any layer: recursion
    return kind, min(layer + random.choice((1, 1, 1, 2)), layers), random.randrange(width)


class _AvroWriter:
    def __init__(self, plan: list[Any], leaf: str) -> None:
        self._plan = plan
        self._leaf = leaf
        self._written: set[str] = set()

    def text(self) -> str:
        return json.dumps(self._record(0, 0))

    def _record(self, layer: int, column: int) -> Any:
        if layer >= len(self._plan):
            return self._leaf
        name = f"R{layer}_{column}"
        if name in self._written:
            return name
        self._written.add(name)
        fields = [
            {"name": f"f{index}", "type": self._linked(*link)}
            for index, link in enumerate(self._plan[layer][column])
        ]
        return {"type": "record", "name": name, "fields": fields}

    def _linked(self, kind: str, layer: int, column: int) -> Any:
        linked = self._record(layer, column)
        if kind == "array":
            return {"type": "array", "items": linked}
        if kind == "map":
            return {"type": "map", "values": linked}
        if kind == "optional" and linked != "null":
            return ["null", linked]
        if kind == "union" and linked != "boolean":
            return [linked, "boolean"]
        return linked


def json_case(seed: int) -> Case:
    """Definitions in layers that combine those below them in all ways, with cycles."""
    random = Random(seed)
    layers = random.randint(*LAYERS)
    width = random.randint(1, 3)
    definitions = {
        f"d{layer}_{column}": _json_definition(random, layer, layers, width)
        for layer in range(layers)
        for column in range(width)
    }
    texts = []
    for leaf in random.choices(("string", "integer", "number", "boolean"), k=2):
        leaves = {f"d{layers}_{column}": {"type": leaf} for column in range(width)}
        texts.append(json.dumps({"$ref": "#/$defs/d0_0", "$defs": {**definitions, **leaves}}))
    return Case(f"json {seed}", SchemaType.JSON, texts[0], texts[1])


def _json_definition(random: Random, layer: int, layers: int, width: int) -> Any:
    def ref() -> Any:
        target = layer + 1 if random.random() < 0.85 else random.randrange(layers + 1)
        return {"$ref": f"#/$defs/d{target}_{random.randrange(width)}"}

    refs = [ref() for _ in range(random.randint(1, 4))]
    choice = random.choice(("object", "object", "array", "oneOf", "anyOf", "allOf", "map", "not"))
    if choice == "object":
        properties = {f"p{index}": one for index, one in enumerate(refs)}
        closed = random.choice((True, False))
        return {"type": "object", "properties": properties, "additionalProperties": not closed}
    if choice == "array":
        return {"type": "array", "items": refs[0]}
    if choice == "map":
        return {
            "type": "object",
            "additionalProperties": refs[0],
            "patternProperties": {"^x": ref()},
        }
    if choice == "not":
        return {"not": refs[0]}
    return {choice: [*refs, {"const": random.randrange(3)}]}


def protobuf_case(seed: int) -> Case:
    """Imported messages in layers: only imported types are compared where they are used."""
    random = Random(seed)
    layers = random.randint(*LAYERS)
    width = random.randint(1, 3)
    bodies = {
        (layer, column): [
            _protobuf_target(random, layer, layers, width) for _ in range(random.randint(1, 4))
        ]
        for layer in range(layers)
        for column in range(width)
    }
    imports = []
    for leaf in random.choices(SCALARS, k=2):
        lines = ['syntax = "proto3";', "package shared;"]
        for (layer, column), targets in bodies.items():
            fields = "".join(
                f"{leaf if target is None else target} f{index} = {index + 1};"
                for index, target in enumerate(targets)
            )
            lines.append(f"message M{layer}_{column} {{{fields}}}")
        imports.append({"shared.proto": "\n".join(lines)})
    text = 'syntax = "proto3"; import "shared.proto"; message Root { shared.M0_0 root = 1; }'
    return Case(f"protobuf {seed}", SchemaType.PROTOBUF, text, text, *imports)


def _protobuf_target(random: Random, layer: int, layers: int, width: int) -> str | None:
    target = layer + 1 if random.random() < 0.85 else random.randrange(layers + 1)
    return None if target >= layers else f"M{target}_{random.randrange(width)}"


def nested_avro(levels: int, leaf: str, *, back: bool = False) -> str:
    """Each record defines the record below it and uses it twice more."""
    schema: Any = {"type": "record", "name": "n0", "fields": [{"name": "v", "type": leaf}]}
    if back:
        schema["fields"].append({"name": "top", "type": ["null", f"n{levels}"]})
    for level in range(1, levels + 1):
        below = f"n{level - 1}"
        fields = [("l", schema), ("r", below), ("s", below)]
        fields_json = [{"name": name, "type": kind} for name, kind in fields]
        schema = {"type": "record", "name": f"n{level}", "fields": fields_json}
    return json.dumps(schema)


def avro_union(records: int, prefix: str) -> str:
    """A union of records."""
    return json.dumps(
        [
            {"type": "record", "name": f"{prefix}{one}", "fields": [{"name": "v", "type": "int"}]}
            for one in range(records)
        ]
    )


def avro_same_names(records: int, leaf: str) -> str:
    """A union of records that differ in their namespaces only."""
    fields = [{"name": "v", "type": leaf}]
    return json.dumps(
        [
            {"type": "record", "name": "R", "namespace": f"s{one}", "fields": fields}
            for one in range(records)
        ]
    )


def avro_record(names: list[str], leaf: str) -> str:
    """A flat record."""
    fields = [{"name": name, "type": leaf} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def avro_enum(symbols: int, prefix: str) -> str:
    """An enum that is used in many fields."""
    enum = {"type": "enum", "name": "E", "symbols": [f"{prefix}{one}" for one in range(symbols)]}
    fields = [{"name": "e", "type": enum}]
    fields += [{"name": f"f{one}", "type": {"type": "array", "items": "E"}} for one in range(1_000)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def json_one_of(branches: int, prefix: str) -> str:
    """Objects that differ in a constant."""
    return json.dumps(
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": f"{prefix}{one}"}, "v": {"type": "string"}},
                    "required": ["kind"],
                    "additionalProperties": False,
                }
                for one in range(branches)
            ]
        }
    )


def json_properties(properties: int, prefix: str, **more: Any) -> str:
    """A flat object."""
    named = {f"{prefix}{one}": {"type": "string"} for one in range(properties)}
    return json.dumps({"type": "object", "properties": named, **more})


def json_levels(levels: int, leaf: str, name: str = "") -> str:
    """Each definition uses the definition below it three times."""
    definitions: dict[str, Any] = {"d0": {"type": leaf}}
    for level in range(1, levels + 1):
        ref = {"$ref": f"#/$defs/d{level - 1}"}
        properties = {f"l{name}": ref, f"r{name}": ref, f"s{name}": ref}
        definitions[f"d{level}"] = {"type": "object", "properties": properties}
    return json.dumps({"$ref": f"#/$defs/d{levels}", "$defs": definitions})


def protobuf_fields(fields: int, first: int, leaf: str = "int32") -> str:
    """A flat message."""
    lines = [f"{leaf} f{one} = {one};" for one in range(first, first + fields)]
    return 'syntax = "proto3"; message R {' + "\n".join(lines) + "}"


def named_cases() -> Iterator[Case]:
    """Cases that were expensive once, and similar ones."""
    avro, json_, protobuf = SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF
    names = [f"f{one}" for one in range(20_000)]
    yield Case("avro 13 levels", avro, nested_avro(13, "int"), nested_avro(13, "string"))
    yield Case("avro 40 levels", avro, nested_avro(40, "int"), nested_avro(40, "string"))
    yield Case(
        "avro 40 levels that refer back",
        avro,
        nested_avro(40, "int", back=True),
        nested_avro(40, "string", back=True),
    )
    yield Case("avro union of 1500", avro, avro_union(1_500, "a"), avro_union(1_500, "b"))
    yield Case("avro union of 1500, extended", avro, avro_union(1_500, "a"), avro_union(1_501, "a"))
    yield Case(
        "avro union of 1500 of one name",
        avro,
        avro_same_names(1_500, "int"),
        avro_same_names(1_500, "string"),
    )
    yield Case("avro 20000 fields", avro, avro_record(names, "int"), avro_record(names, "string"))
    yield Case(
        "avro 20000 fields renamed",
        avro,
        avro_record(names, "int"),
        avro_record([f"x{name}" for name in names], "int"),
    )
    yield Case("avro 20000 symbols", avro, avro_enum(20_000, "a"), avro_enum(20_000, "b"))
    yield Case(
        "avro long name",
        avro,
        avro_record([f"{'x' * 200_000}{one}" for one in range(4)], "int"),
        avro_record([f"{'y' * 200_000}{one}" for one in range(4)], "int"),
    )
    yield Case("json oneOf 400", json_, json_one_of(400, "a"), json_one_of(400, "b"))
    yield Case("json oneOf 400, extended", json_, json_one_of(400, "a"), json_one_of(401, "a"))
    yield Case(
        "json 24000 properties",
        json_,
        json_properties(24_000, "a"),
        json_properties(24_000, "b"),
    )
    patterns = {f"^{one}x$": {"type": "string"} for one in range(5_000)}
    yield Case(
        "json patterns",
        json_,
        json_properties(5_000, "a", patternProperties=patterns, additionalProperties=False),
        json_properties(5_000, "b", patternProperties=patterns, additionalProperties=False),
    )
    yield Case("json 40 levels", json_, json_levels(40, "string"), json_levels(40, "integer"))
    yield Case(
        "json 60 levels of long names",
        json_,
        json_levels(60, "string", "x" * 5_000),
        json_levels(60, "integer", "x" * 5_000),
    )
    yield Case(
        "protobuf 20000 fields",
        protobuf,
        protobuf_fields(20_000, 20_000),
        protobuf_fields(20_000, 50_000),
    )
    yield Case(
        "protobuf 15000 fields changed",
        protobuf,
        protobuf_fields(15_000, 1),
        protobuf_fields(15_000, 1, "string"),
    )


def registry_check(_case: Case, old: ParsedSchema, new: ParsedSchema) -> int:
    """As the registry checks it; returns the characters of its response."""
    result = check(
        Level.FULL, new, [EarlierVersion(1, old)], incompatibilities=CACHE.incompatibilities
    )
    reader_breaks = find_reader_breaks(
        Reader("reader", schema=old), new, None, incompatibilities=CACHE.incompatibilities
    )
    return sum(
        map(
            len,
            [*incompatibility_messages(result, Level.FULL), *reader_break_messages(reader_breaks)],
        )
    )


def advice(_case: Case, old: ParsedSchema, new: ParsedSchema) -> int:
    """As `penstock schema diff` does."""
    return _characters(check_pair(old, new))


def gate_check(case: Case, old: ParsedSchema, new: ParsedSchema) -> int:
    """As the contract gate checks it."""
    version = ContractVersion(1, SchemaText(case.language, case.old), old)
    history = GivenContracts([version], CompatibilitySettings(level=Level.FULL))
    return _characters(gate.check(history, "s", new, CheckOptions(date(2026, 1, 1))))


def _characters(result: CheckResult) -> int:
    return sum(len(change.sentence) + len(change.path) for change in result.breaking_changes)


CHECKS: tuple[Callable[[Case, ParsedSchema, ParsedSchema], int], ...] = (
    registry_check,
    advice,
    gate_check,
)


def parsed(case: Case) -> tuple[ParsedSchema, ParsedSchema]:
    """Both schemas, each with its own references."""
    sides = []
    for version, (text, imports) in enumerate(
        ((case.old, case.old_imports), (case.new, case.new_imports)), 1
    ):
        references = tuple(Reference(name, "shared", version) for name in imports)
        schema = CACHE.parse(SchemaText(case.language, text, references), imports)
        schema.equivalent(schema)
        _ = schema.normalized().canonical
        sides.append(schema)
    return sides[0], sides[1]


def main() -> None:
    language, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    makers = {"avro": avro_case, "json": json_case, "protobuf": protobuf_case}
    if language == "named":
        cases: Iterator[Case] = named_cases()
    else:
        cases = (makers[language](seed + number) for number in range(count))
    for maker in makers.values():
        list(measured(maker(0)))  # what the first case of a process imports is no cost of a case
    for case in cases:
        child = os.fork()
        if child == 0:
            for cost in measured(case):
                sys.stdout.write(f"{json.dumps(cost)}\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"{case.name} ended with {status}"


def measured(case: Case) -> Iterator[dict[str, Any]]:
    """Each check of a case."""
    resident_mb = _resident_mb()
    for run in CHECKS:
        start_s = time.process_time()
        old, new = parsed(case)  # cached after the first check
        characters = run(case, old, new)
        spent_s = time.process_time() - start_s
        yield {
            "case": case.name,
            "check": run.__name__,
            "cpu_s": round(spent_s, 3),
            "peak_mb": round(_peak_mb() - resident_mb),
            "characters": characters,
            "first": next((one.kind for one in CACHE.incompatibilities(new, old)), None),
        }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def _peak_mb() -> float:
    """Of this process: a new one starts with the memory that it has then."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
