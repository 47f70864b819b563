"""Keys and values between their bytes and JSON, by the schemas of a registry.

`auto` uses a schema where there is one: a frame that names it, or the latest version of the topic's
subject. Otherwise bytes stay as they are. A named language is required of every value.
"""

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import msgspec
import typer

from penstock.cli.error_output import UNREACHABLE, fail
from penstock.cli.options import LOCAL_REGISTRY
from penstock.schemas.model import SchemaType
from penstock.serde.frame import BadFrameError, Headers, Side, read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.registry import Registry
    from penstock.gateway.produce.encode import SchemaWriter
    from penstock.serde.serializers import Deserializer


class ValueFormat(StrEnum):
    """How values are encoded."""

    AUTO = "auto"
    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"

    @property
    def language(self) -> SchemaType | None:
        """The language that schemas must have; None: any."""
        return SchemaType.__members__.get(self.name)


ValueFormatOption = Annotated[
    ValueFormat,
    typer.Option(
        "--value-format",
        help="Encoding of values. auto: by the schema in the registry if there is one; raw: bytes "
        "as they are, of keys too.",
    ),
]


class UnfitValueError(Exception):
    """A value that cannot be decoded or encoded in the required format."""


class MessageDecoder:
    """Decodes the keys and values of messages to JSON values. For one thread."""

    def __init__(self, registry_url: str, value_format: ValueFormat) -> None:
        self._url = registry_url
        self._format = value_format
        self._closing = ExitStack()
        self._deserializers: dict[tuple[str, Side], Deserializer] = {}
        self._is_off = value_format is ValueFormat.RAW

    def decode(self, topic: str, side: Side, content: bytes | None, headers: Headers) -> Any:
        """The JSON value of framed bytes; `content` itself if it stays as it is."""
        if content is None or self._is_off:
            return content
        is_required = side is Side.VALUE and self._format is not ValueFormat.AUTO
        try:
            frame = read_frame(content, headers, side)
        except BadFrameError as error:
            if is_required:
                return self._unframed(content, error)
            return content
        from penstock.serde.errors import ClientError, RegistryUnavailableError

        try:
            if is_required:
                _check_language(self._registry.schema(frame.schema).parsed.type, self._format)
            return json_value(self._deserializer(topic, side).deserialize(content, headers))
        except RegistryUnavailableError as failure:
            if is_required:
                _fail_unreachable(self._url, failure.cause)
            self._is_off = True
            typer.echo(
                f"penstock: no registry at {self._url}: values are shown as they are", err=True
            )
            return content
        except ClientError as failure:
            if is_required:
                raise UnfitValueError(str(failure)) from None
            return content

    def _unframed(self, content: bytes, error: BadFrameError) -> Any:
        if self._format is ValueFormat.JSON:
            try:
                return msgspec.json.decode(content)
            except msgspec.DecodeError:
                raise UnfitValueError("neither JSON nor a frame that names a schema") from None
        raise UnfitValueError(f"no frame that names a schema: {error}")

    @cached_property
    def _registry(self) -> "Registry":
        return self._closing.enter_context(_open(self._url))

    def _deserializer(self, topic: str, side: Side) -> "Deserializer":
        from penstock.serde.serializers import Deserializer

        known = self._deserializers.get((topic, side))
        if known is None:
            known = Deserializer(self._registry, topic, side=side, as_dicts=True)
            self._deserializers[topic, side] = known
        return known

    def close(self) -> None:
        """Close the connection to the registry."""
        self._closing.close()


Encode = Callable[[Any], bytes]


@contextmanager
def encoders(
    topic: str, registry_url: str, value_format: ValueFormat
) -> "Iterator[tuple[Encode | None, Encode | None]]":
    """What encodes JSON values of keys and of values; None: bytes are sent as they are."""
    if value_format is ValueFormat.RAW:
        yield None, None
        return
    with _open(registry_url) as registry:
        value = _writer(registry, f"{topic}-{Side.VALUE}", value_format, Side.VALUE)
        key = _writer(registry, f"{topic}-{Side.KEY}", ValueFormat.AUTO, Side.KEY)
        yield _encode_by(key), _encode_by(value)


def _writer(
    registry: "Registry", subject: str, value_format: ValueFormat, side: Side
) -> "SchemaWriter | None":
    from penstock.gateway.produce.encode import SchemaWriter
    from penstock.serde.errors import ClientError, RegistryUnavailableError, UnknownSchemaError

    is_required = value_format is not ValueFormat.AUTO
    try:
        known = registry.latest(subject)
        _check_language(known.parsed.type, value_format)
        return SchemaWriter(known, side)
    except UnknownSchemaError:
        if not is_required:
            return None
        fail(
            f"the registry has no subject {subject}; register its schema with "
            f"`penstock schema register {subject} FILE`."
        )
    except RegistryUnavailableError as failure:
        # Without a registry of its own a broker has no schemas.
        if not is_required and registry.url == LOCAL_REGISTRY:
            return None
        _fail_unreachable(registry.url, failure.cause)
    except (ClientError, UnfitValueError) as failure:
        fail(f"{subject}: {failure}")


def _encode_by(writer: "SchemaWriter | None") -> Encode | None:
    if writer is None:
        return None
    from penstock.serde.errors import EncodeError

    def encode(value: Any) -> bytes:
        try:
            return writer.encode(value)
        except EncodeError as error:
            raise UnfitValueError(f"does not fit {writer.known.subject}: {error}") from None

    return encode


def _check_language(language: SchemaType, value_format: ValueFormat) -> None:
    if value_format.language not in (None, language):
        raise UnfitValueError(f"its schema is {language}, not {value_format.upper()}")


def _open(url: str) -> "Registry":
    from penstock.client.registry import Registry

    return Registry(url, client="penstock", attempts=1)


def _fail_unreachable(url: str, cause: str) -> NoReturn:
    fail(
        f"cannot connect to the registry at {url}: {cause}. Name another with --registry URL, or "
        "send and show bytes as they are with --value-format raw.",
        UNREACHABLE,
    )


_to_json: Final = msgspec.json.Encoder().encode
_from_json: Final = msgspec.json.Decoder().decode


def json_value(value: Any) -> Any:
    """A decoded value in JSON's types: bytes as base64, times as ISO 8601, decimals as text."""
    return _from_json(_to_json(value))
