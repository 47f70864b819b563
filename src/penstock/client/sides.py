"""Keys and values as programs have them: under a contract, or plain text and bytes."""

from typing import Any

from penstock.client.contract import Contract
from penstock.client.errors import ClientError
from penstock.client.frame import Side
from penstock.client.registry import Registry
from penstock.client.serializers import Framed, Serializer


class PlainWriter:
    """No contract: bytes as they are, text as UTF-8."""

    def __init__(self, topic: str, side: Side) -> None:
        self._topic = topic
        self._side = side

    def serialize(self, value: Any) -> Framed:
        """The bytes."""
        match value:
            case None | bytes():
                return Framed(value)
            case str():
                return Framed(value.encode())
            case bytearray() | memoryview():
                return Framed(bytes(value))
            case other:
                raise ClientError(
                    f"a {type(other).__name__} cannot be the {self._side} of a record of "
                    f"{self._topic}: give bytes or text, or a contract to write it with"
                )


SideWriter = Serializer | PlainWriter


def writer_for(
    topic: str, side: Side, contract: Contract | None, registry: Registry | None
) -> SideWriter:
    """What writes one side of a topic's records."""
    if contract is None:
        return PlainWriter(topic, side)
    if registry is None:
        raise ClientError(
            f"the {side} of {topic} has a contract, and there is no registry to keep it: pass "
            "registry=Registry('http://host:8081')"
        )
    return Serializer(registry, topic, contract, side=side)
