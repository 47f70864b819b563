"""Why the registry's answer and the events differ, by language and change."""

from typing import Final

_OPEN_MODEL: Final = (
    "The content model is open: an event may contain the name already, with another type, so the"
    " registry refuses. The events of the lab do not."
)
EXPLANATIONS: Final[dict[tuple[str, str], str]] = {
    ("AVRO", "add an enum symbol"): (
        "An old reader takes the enum's default for a symbol that it does not know: no error, but"
        " another value. Avro calls that compatible."
    ),
    ("PROTOBUF", "add an enum symbol"): (
        "Enums of proto3 are open: an old reader keeps the number of a symbol that it does not"
        " know, without its name. No error, but no known value."
    ),
    ("PROTOBUF", "int to long"): (
        "int32 and int64 have the same form on the wire, so the change is accepted in both"
        " directions; an old reader drops the upper 32 bits of a larger number without an error."
    ),
    ("JSON", "add an optional field"): _OPEN_MODEL,
    ("JSON", "add a field to line items"): _OPEN_MODEL,
    ("JSON", "remove an optional field"): _OPEN_MODEL,
    ("JSON", "drop a default added before"): (
        "A writer of the version before may leave the field out, so the registry refuses; the"
        " events of the lab have it."
    ),
}
