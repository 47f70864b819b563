"""One connection to a broker, without a socket: requests to bytes, bytes to responses.

A broker responds in the order of the requests: a response with another number than the next one due
is Malformed, and so is a body that is not the expected message. After Malformed the connection
cannot be used any more.

Each frame has memory of its own, which is never reused: views of it may outlive the connection. A
large frame is received directly into its memory; small ones are copied out of one shared buffer.
"""

from collections import deque
from collections.abc import Generator
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.operation import Parts, Request, request_of
from penstock.link.sasl import Login, converse
from penstock.link.settings import Address, LinkSettings, UnreachableError
from penstock.protocol.api import Api, api_name
from penstock.protocol.framing import (
    RESPONSE_BYTES_MIN,
    SIZE_BYTES,
    frame_end,
    response_has_tags,
    skip_tagged_fields,
    write_request_header,
)
from penstock.protocol.message import Message
from penstock.protocol.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from penstock.protocol.messages.security import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

_SHARED_BUFFER_BYTES: Final = 64 << 10


class FrameReceiver:
    """Provides buffers to receive into, and cuts what was received into frames."""

    __slots__ = ("_bytes_max", "_filled", "_frame", "_shared")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._shared = memoryview(bytearray(_SHARED_BUFFER_BYTES))
        self._frame: memoryview | None = None  # a frame of known size, not yet complete
        self._filled = 0  # bytes in the frame, or in the shared buffer while there is none

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        target = self._shared if self._frame is None else self._frame
        return target[self._filled :]

    def received(self, size: int) -> list[memoryview]:
        """The frames that are complete after `size` bytes were written to `buffer`.

        Raises Malformed for a size that no broker would send.
        """
        self._filled += size
        if self._frame is None:
            return self._cut()
        if self._filled < len(self._frame):
            return []
        frame, self._frame, self._filled = self._frame, None, 0
        return [frame]

    def _cut(self) -> list[memoryview]:
        frames = []
        start, end, shared = 0, self._filled, self._shared
        while True:
            following = frame_end(
                shared, start, end, bytes_min=RESPONSE_BYTES_MIN, bytes_max=self._bytes_max
            )
            if following is None or following > end:
                break
            frames.append(memoryview(bytes(shared[start + SIZE_BYTES : following])))
            start = following
        if following is None:
            self._filled = end - start
            shared[: self._filled] = bytes(shared[start:end])
        else:
            start += SIZE_BYTES
            self._frame = memoryview(bytearray(following - start))
            self._filled = end - start
            self._frame[: self._filled] = shared[start:end]
        return frames


_SIZE: Final = Struct(">i")
_CORRELATION: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_NUMBER_MAX: Final = (1 << 31) - 1
_SOFTWARE: Final = "penstock"
_SOFTWARE_VERSION: Final = "1"  # shown in a broker's metrics; letters, digits and dots only


class OutgoingRequest(NamedTuple):
    """A request to be sent: its number, None if it has no response, and its bytes."""

    number: int | None
    parts: Parts


class Response(NamedTuple):
    """The response to the request with a number."""

    number: int
    body: Any


class _Pending(NamedTuple):
    number: int
    message: Message[Any, Any]
    version: int


class LinkConnection:
    """The state of a connection: which versions the broker offers, which responses are due."""

    def __init__(self, address: Address, settings: LinkSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._login = settings.login
        self._receiver = FrameReceiver(frame_bytes_max=settings.response_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._number = 0
        self._offered: dict[int, range] = {}
        self.features: dict[str, int] = {}  # finalized features of the cluster: name to level

    @property
    def in_flight(self) -> int:
        """Requests without a response."""
        return len(self._pending)

    def open(self, nonce: str = "") -> Generator[Request[Any], Any, None]:
        """The requests before any other; each needs its response before the next.

        A login needs a nonce that was never used before.
        """
        yield from self._negotiate_versions()
        if self._login is not None:
            yield from self._log_in(self._login, nonce)

    def _negotiate_versions(self) -> Generator[Request[Any], Any, None]:
        response = yield _versions_request(version=4)
        if response.error_code == ErrorCode.unsupported_version:
            newest = {row.api_key: row.max_version for row in response.api_keys}
            response = yield _versions_request(version=newest.get(Api.API_VERSIONS, 0))
        if response.error_code != ErrorCode.none:
            raise Refused(
                ErrorCode(response.error_code),
                f"broker {self.address} does not list its API versions",
            )
        self._offered = {
            row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys
        }
        for row in response.finalized_features:
            self.features[row.name] = row.max_version_level

    def _log_in(self, login: Login, nonce: str) -> Generator[Request[Any], Any, None]:
        handshake = SaslHandshakeRequest(login.mechanism)
        response = yield request_of(SASL_HANDSHAKE, handshake, version_min=1)
        if response.error_code != ErrorCode.none:
            raise Refused(
                ErrorCode(response.error_code),
                f"broker {self.address} does not support {login.mechanism}; it supports"
                f" {', '.join(response.mechanisms) or 'no login on this port'}",
            )
        conversation = converse(login, nonce)
        message = next(conversation)
        while True:
            response = yield request_of(SASL_AUTHENTICATE, SaslAuthenticateRequest(message))
            if response.error_code != ErrorCode.none:
                raise Refused(
                    ErrorCode(response.error_code),
                    f"broker {self.address} refuses the login of {login.username}:"
                    f" {response.error_message}",
                )
            try:
                message = conversation.send(response.auth_bytes)
            except StopIteration:
                return

    def version_of(self, request: Request[Any]) -> int:
        """The newest version that the broker, this client and the request have in common."""
        if request.api is Api.API_VERSIONS:
            return request.version_max
        ours, theirs = request.versions, self._offered.get(request.api, range(0))
        first, stop = max(ours.start, theirs.start), min(ours.stop, theirs.stop)
        if first >= stop:
            raise Refused(ErrorCode.unsupported_version, self._no_version(request, ours, theirs))
        return stop - 1

    def _no_version(self, request: Request[Any], ours: range, theirs: range) -> str:
        name = api_name(request.api)
        needed = f"{ours.start} to {ours.stop - 1}" if ours else "no version"
        if not theirs:
            return f"broker {self.address} does not serve {name}; versions {needed} are needed"
        return (
            f"broker {self.address} serves {name} in versions {theirs.start} to {theirs.stop - 1},"
            f" {needed} is needed: the broker is too old or too new"
        )

    def write(self, request: Request[Any]) -> OutgoingRequest:
        """Give a request its version and number; requests must be sent in the order of calls."""
        version = self.version_of(request)
        body = request.message.write_request(request.body(version), version)
        number = self._number
        self._number = number + 1 if number < _NUMBER_MAX else 0
        header = write_request_header(
            api_key=request.api,
            api_version=version,
            correlation_id=number,
            client_id=self._client_id,
        )
        size = len(header) + sum(map(len, body))
        start = _SIZE.pack(size) + header
        if not request.has_response:
            return OutgoingRequest(None, (start, *body))
        self._pending.append(_Pending(number, request.message, version))
        return OutgoingRequest(number, (start, *body))

    def buffer(self) -> memoryview:
        """Where the next bytes from the broker go."""
        return self._receiver.buffer()

    def received(self, size: int) -> list[Response]:
        """The responses that are complete after `size` bytes were written to `buffer`."""
        try:
            return [self._read_response(frame) for frame in self._receiver.received(size)]
        except Malformed as error:
            raise Malformed(self._explained(error), error.position) from error

    def _read_response(self, frame: memoryview) -> Response:
        (number,) = _CORRELATION.unpack_from(frame)
        if not self._pending:
            raise Malformed(f"response {number} to no request", 0)
        pending = self._pending[0]
        if number != pending.number:
            raise Malformed(f"response {number} where {pending.number} was due", 0)
        position = _CORRELATION.size
        message, version = pending.message, pending.version
        if response_has_tags(message.api, version):
            position = skip_tagged_fields(frame, position, len(frame))
        if message.api is Api.API_VERSIONS and _is_unsupported(frame, position):
            version = 0  # the version of the response of a broker that does not know this one
        body = message.read_response(frame, position, version)
        self._pending.popleft()
        return Response(number, body)

    def _explained(self, error: Malformed) -> str:
        if not self._offered:
            return (
                f"the server at {self.address} does not speak the Kafka protocol ({error.reason}):"
                " check the port, and whether this listener requires TLS"
            )
        request = f" to {api_name(self._pending[0].message.api)}" if self._pending else ""
        return f"broker {self.address} sent an invalid response{request}: {error.reason}"

    def lost(self, reason: str) -> str:
        """The message for a connection that ended while responses were due."""
        if not self._offered:
            return (
                f"broker {self.address} closed the connection during the handshake ({reason}):"
                " check that it is a Kafka listener, and whether it requires TLS or a login"
            )
        if not self._pending:
            return f"broker {self.address} closed the connection ({reason})"
        pending = self._pending[0]
        return (
            f"broker {self.address} closed the connection ({reason}) before the response to"
            f" {api_name(pending.message.api)} version {pending.version}"
        )


def connect_timeout(address: Address, settings: LinkSettings) -> UnreachableError:
    """The failure of a connection that was not accepted in time."""
    return UnreachableError(
        f"broker {address} did not accept the connection in {settings.connect_timeout_ms} ms: check"
        " the address and the network"
    )


def cannot_connect(address: Address, error: OSError) -> UnreachableError:
    """The failure of a connection that was refused."""
    return UnreachableError(
        f"cannot connect to broker {address} ({error}): check that it is running"
    )


def response_timeout(address: Address, request: Request[Any], limit_ms: int) -> TimeoutError:
    """The failure of a request without a response in time."""
    name = api_name(request.api)
    return TimeoutError(f"broker {address} did not respond to {name} in {limit_ms} ms")


def _versions_request(*, version: int) -> Request[ApiVersionsResponse]:
    body = ApiVersionsRequest(_SOFTWARE, _SOFTWARE_VERSION)
    return request_of(API_VERSIONS, body, version_max=version)


def _is_unsupported(frame: memoryview, position: int) -> bool:
    if len(frame) - position < _ERROR.size:
        return False
    (code,) = _ERROR.unpack_from(frame, position)
    return bool(code == ErrorCode.unsupported_version)
