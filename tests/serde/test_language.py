"""Each language is a row, and its modules are what the row promises."""

from pathlib import Path

import pytest

import penstock.serde.avro.columns
import penstock.serde.avro.event
import penstock.serde.json.columns
import penstock.serde.json.event
import penstock.serde.protobuf.columns
import penstock.serde.protobuf.event
from penstock.extras import EXTRAS
from penstock.schemas.model import SchemaType
from penstock.serde import language
from penstock.serde.column_codec import ColumnCodec
from penstock.serde.event_codec import EventCodec
from penstock.serde.language import LANGUAGES, SUFFIXES, Language, type_of_file

# The assignments are checked by mypy: the modules have the functions of the protocols.
EVENT_CODECS: dict[SchemaType, EventCodec] = {
    SchemaType.AVRO: penstock.serde.avro.event,
    SchemaType.PROTOBUF: penstock.serde.protobuf.event,
    SchemaType.JSON: penstock.serde.json.event,
}
COLUMN_CODECS: dict[SchemaType, ColumnCodec] = {
    SchemaType.AVRO: penstock.serde.avro.columns,
    SchemaType.PROTOBUF: penstock.serde.protobuf.columns,
    SchemaType.JSON: penstock.serde.json.columns,
}


def test_every_type_of_schema_has_a_row() -> None:
    assert set(LANGUAGES) == set(SchemaType)
    assert len(SUFFIXES) == len(LANGUAGES)


@pytest.mark.parametrize("row", LANGUAGES.values(), ids=lambda row: row.title)
def test_a_row_leads_to_its_codecs(row: Language) -> None:
    assert row.event_codec is EVENT_CODECS[row.type]
    assert row.column_codec is COLUMN_CODECS[row.type]
    assert row.extra is None or row.extra in EXTRAS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("order.avsc", SchemaType.AVRO),
        ("a/b.proto", SchemaType.PROTOBUF),
        ("x.json", SchemaType.JSON),
        ("order.txt", None),
        ("avsc", None),
    ],
)
def test_the_suffix_of_a_file_names_its_language(name: str, expected: SchemaType | None) -> None:
    assert type_of_file(Path(name)) is expected


def test_suffixes_are_written_once() -> None:
    root = Path(language.__file__).parents[1]
    in_code = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if '".avsc"' in path.read_text() or '".proto"' in path.read_text()
    ]
    assert in_code == ["serde/language.py"]
