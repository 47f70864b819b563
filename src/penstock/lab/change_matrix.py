"""Every class of change, in every language, at every level: what the registry says, what happens.

The registry's answer is a registration. What happens is read live in both directions: an event of
the old schema with the new one as the reader's, and the other way round. Fields are the same where
they have the same number; a value that arrives different, or not at all, counts as lost.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.client.registry import Registry
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.lab.matrix_notes import EXPLANATIONS
from penstock.lab.order_events import order_event
from penstock.lab.order_schemas import CHANGES, OrderShape, contract_of, schema_text
from penstock.schemas.compatibility import Level
from penstock.schemas.model import SchemaType
from penstock.serde.errors import DecodeError, RegistryRefusedError
from penstock.serde.serializers import Deserializer, Serializer

_QUESTION: Final = (
    "Which changes does the registry accept at which level, and can events really be read then?"
)
_LEVELS: Final = tuple(level for level in Level if level is not Level.NONE)
_EVENTS: Final = 30  # enough for every status and for absent values


class LiveRead(NamedTuple):
    """What came of reading events of one schema with another."""

    error: str  # "": none
    lost: tuple[str, ...]  # fields that arrived different

    @property
    def is_good(self) -> bool:
        """Whether everything arrived."""
        return not self.error and not self.lost

    def __str__(self) -> str:
        if self.error:
            return self.error
        return f"reads; {', '.join(self.lost)} arrives different" if self.lost else "reads"


class MatrixCell(NamedTuple):
    """One change at one level."""

    is_accepted: bool
    works: bool
    reason: str  # of the refusal


def run_matrix(lab: LabRun) -> LabResult:
    """Fill the matrix."""
    result = lab.result(_QUESTION, changes=len(CHANGES), levels=len(_LEVELS))
    differing: set[tuple[str, str]] = set()
    cells = agreeing = 0
    cases = [(language, change) for language in SchemaType for change in CHANGES]
    rows: dict[SchemaType, list[list[str]]] = {language: [] for language in SchemaType}
    reads: dict[SchemaType, list[list[str]]] = {language: [] for language in SchemaType}
    with lab.platform.registry() as registry:
        for language, change in lab.steps("matrix", cases):
            forth, back = live_reads(registry, language, change, lab.seed)
            row = [change]
            for level in _LEVELS:
                cell = _cell(registry, language, change, level, forth, back)
                cells += 1
                agreeing += cell.is_accepted == cell.works
                row.append(_shown(cell))
                result.numbers[f"{language} {change} {level}"] = _shown(cell)
                if cell.is_accepted != cell.works:
                    differing.add((str(language), change))
            rows[language].append(row)
            reads[language].append([change, str(forth[-1]), str(back[-1])])
    for language in SchemaType:
        result.table(f"{language}: the registry's answer", ("change", *_LEVELS), rows[language])
        result.table(
            f"{language}: what happens",
            ("change", "the new schema reads old events", "the old schema reads new events"),
            reads[language],
        )
    unexplained = sorted(differing - set(EXPLANATIONS))
    result.claim(
        "where the answer and the events differ, the reason is known",
        f"{cells - agreeing} of {cells} cells differ; unexplained: {unexplained or 'none'}",
        not unexplained,
    )
    unsafe = [name for name, shown in result.numbers.items() if shown == "accepted!"]
    unknown = sorted(name for name in unsafe if not name.startswith(_KNOWN_UNSAFE))
    result.claim(
        "the registry accepts no change that makes events unreadable",
        f"{len(unsafe)} accepted where a value is replaced; others: {unknown or 'none'}",
        not unknown,
    )
    result.notes.append(
        "accepted and refused are the registry's answer. A mark (!) says that events behave"
        " otherwise: accepted! means that a value is lost or an event unreadable, refused! that"
        " every event can be read all the same."
    )
    result.table(
        "Where answer and events differ",
        ("language", "change", "why"),
        [(language, change, EXPLANATIONS.get((language, change), "unknown"))
         for language, change in sorted(differing)],
    )  # fmt: skip
    result.numbers |= {"cells": cells, "agreeing": agreeing, "differing": cells - agreeing}
    return result


# By design of the languages: no error, and another value. `EXPLANATIONS` has the reasons.
_KNOWN_UNSAFE: Final = (
    "AVRO add an enum symbol",
    "PROTOBUF add an enum symbol",
    "PROTOBUF int to long",
)


def live_reads(
    registry: Registry, language: SchemaType, change: str, seed: int
) -> tuple[list[LiveRead], list[LiveRead]]:
    """New reads old, and old reads new; for each earlier version, the oldest first."""
    *earlier, new = CHANGES[change]
    topic = f"matrix live {language} {change}".replace(" ", "-")
    registry.api.set_config(f"{topic}-value", {"compatibility": "NONE"})
    forth = [_read(registry, topic, language, old, new, seed) for old in earlier]
    back = [_read(registry, topic, language, new, old, seed) for old in earlier]
    return forth, back


def _read(
    registry: Registry,
    topic: str,
    language: SchemaType,
    writes: OrderShape,
    reads: OrderShape,
    seed: int,
) -> LiveRead:
    serializer = Serializer(registry, topic, contract_of(writes, language))
    reader = contract_of(reads, language, auto_register=False)
    deserializer = Deserializer(registry, topic, reader=reader, as_dicts=True)
    lost: dict[str, None] = {}
    for number in range(_EVENTS):
        written = order_event(writes, seed, number)
        content = serializer.serialize(written).content
        try:
            read = deserializer.deserialize(content)
        except DecodeError as error:
            return LiveRead(" ".join(str(error.detail).split())[:160], ())
        lost |= dict.fromkeys(_differing(writes, written, reads, read))
    return LiveRead("", tuple(lost))


def _differing(
    writes: OrderShape, written: Mapping[str, Any], reads: OrderShape, read: Mapping[str, Any]
) -> list[str]:
    names = {field.number: field.name for field in reads.fields}
    differing = []
    for field in writes.fields:
        name = names.get(field.number)
        if name is None or field.name not in written:
            continue
        sent, arrived = written[field.name], read.get(name)
        if field.name == "items":
            sent = [{key: item[key] for key in ("sku", "cents")} for item in sent]
            arrived = [{key: item[key] for key in ("sku", "cents")} for item in arrived or ()]
        if str(sent) != str(arrived):
            differing.append(name)
    return differing


def _cell(
    registry: Registry,
    language: SchemaType,
    change: str,
    level: Level,
    forth: Sequence[LiveRead],
    back: Sequence[LiveRead],
) -> MatrixCell:
    *earlier, new = CHANGES[change]
    subject = f"matrix {language} {change} {level}".replace(" ", "-")
    registry.api.set_config(subject, {"compatibility": "NONE"})
    for shape in earlier:
        registry.register(subject, schema_text(shape, language))
    registry.api.set_config(subject, {"compatibility": str(level)})
    reason = ""
    try:
        registry.register(subject, schema_text(new, language))
    except RegistryRefusedError as refusal:
        reason = refusal.message
    compared = slice(None) if level.is_transitive else slice(-1, None)
    needed = [*(forth[compared] if level.is_backward else ())]
    needed += back[compared] if level.is_forward else ()
    return MatrixCell(not reason, all(read.is_good for read in needed), reason)


def _shown(cell: MatrixCell) -> str:
    answer = "accepted" if cell.is_accepted else "refused"
    return answer if cell.is_accepted == cell.works else f"{answer}!"
