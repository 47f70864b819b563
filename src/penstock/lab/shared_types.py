"""A type that several subjects share by reference: how it evolves, and what it can break."""

import json
from typing import Any, Final

from penstock.client.registry import Registry
from penstock.lab.lab_result import LabResult
from penstock.lab.lab_run import LabRun
from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.serde.contract import Contract
from penstock.serde.errors import RegistryRefusedError
from penstock.serde.serializers import Deserializer, Serializer

_QUESTION: Final = "Can an Address that orders and customers share evolve without breaking either?"
_NAME: Final = "lab.Address"
_FIELDS: Final = [{"name": "street", "type": "string"}, {"name": "city", "type": "string"}]
_OPTIONAL: Final = {"name": "zip", "type": ["null", "string"], "default": None}
_REQUIRED: Final = {"name": "country", "type": "string"}
_USERS: Final = ("order", "customer", "invoice")


def run_references(lab: LabRun) -> LabResult:
    """Evolve the Address under its users."""
    result = lab.result(_QUESTION, subjects=len(_USERS))
    with lab.platform.registry() as registry:
        address = "references-address"
        first = _register_address(registry, address, _FIELDS)
        for user in _USERS:
            registry.register(f"references-{user}-value", _user(user, _reference(address, first)))
        second = _register_address(registry, address, [*_FIELDS, _OPTIONAL])
        rows = [_evolve(registry, address, first, second, user) for user in _USERS]
        result.claim(
            "an optional field of the Address is read in both directions by every user",
            "; ".join(f"{row[0]}: {row[1]}, {row[2]}" for row in rows),
            all(row[1:] == ("reads", "reads") for row in rows),
        )
        result.table(
            "An optional field is added to the Address",
            ("user", "new reads old", "old reads new"),
            rows,
        )
        pinned = registry.version("references-order-value", 1).source.references
        result.claim(
            "a user stays on the version of the Address that it refers to",
            f"version {pinned[0].version}", pinned[0].version == first,
        )  # fmt: skip
        refused = _refusal(registry)
        result.claim(
            "a required field of the Address is refused where it is used, by name",
            refused[:160] or "accepted", "country" in refused,
        )  # fmt: skip
        result.numbers["users"] = len(_USERS)
    return result


def _evolve(
    registry: Registry, address: str, first: int, second: int, user: str
) -> tuple[str, str, str]:
    topic = f"references-{user}"
    old, new = (_contract(user, address, version) for version in (first, second))
    value = {"id": 1, "address": {"street": "Long Street", "city": "Some Town"}}
    outcomes = []
    for writes, reads, sent in (
        (old, new, value),
        (new, old, {**value, "address": {**value["address"], "zip": "12345"}}),  # type: ignore[dict-item]  # the address is a dict
    ):
        content = Serializer(registry, topic, writes).serialize(sent).content
        read = Deserializer(registry, topic, reader=reads, as_dicts=True).deserialize(content)
        same = read["address"]["city"] == "Some Town" and read["id"] == 1
        outcomes.append("reads" if same else "differs")
    return user, outcomes[0], outcomes[1]


def _refusal(registry: Registry) -> str:
    """What the registry says to an order with an Address that has a required field more."""
    other = "references-address-required"
    version = _register_address(registry, other, [*_FIELDS, _REQUIRED])
    try:
        registry.register("references-order-value", _user("order", _reference(other, version)))
    except RegistryRefusedError as refusal:
        return refusal.message
    return ""


def _register_address(registry: Registry, subject: str, fields: list[Any]) -> int:
    """The version it has."""
    text = json.dumps({"type": "record", "name": _NAME, "fields": fields})
    source = SchemaText(SchemaType.AVRO, text)
    registry.register(subject, source)
    return len(registry.api.versions(subject))


def _reference(subject: str, version: int) -> Reference:
    return Reference(_NAME, subject, version)


def _user(name: str, reference: Reference) -> SchemaText:
    fields = [{"name": "id", "type": "long"}, {"name": "address", "type": _NAME}]
    text = json.dumps({"type": "record", "name": f"lab.{name.title()}", "fields": fields})
    return SchemaText(SchemaType.AVRO, text, (reference,))


def _contract(name: str, address: str, version: int) -> Contract:
    source = _user(name, _reference(address, version))
    return Contract(source.text, SchemaType.AVRO, references=source.references)
