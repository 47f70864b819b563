"""One conversation with a broker, without a socket.

Requests in, bytes out; bytes in, responses out. A broker answers in the order it was asked: an
answer with another number than the one that is due is Malformed, and so is anything that is not
the message it should be. After Malformed the connection is good for nothing.

Bytes off a socket -> whole frames, each in memory of its own.

What a frame holds may be handed on as views and outlive the connection: a frame's memory is never
used again. A large frame is received straight into its place; small ones are copied out of one
shared scratch area.
"""

from collections import deque
from collections.abc import Generator
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.operation import Parts, Request, plain
from penstock.link.sasl import Login, converse
from penstock.link.settings import Address, LinkSettings
from penstock.protocol.api import Api
from penstock.protocol.framing import (
    RESPONSE_BYTES_MIN,
    SIZE_BYTES,
    frame_end,
    response_has_tags,
    skip_tagged_fields,
    write_request_header,
)
from penstock.protocol.kio_codec import BodyReader, api_name, response_reader
from penstock.protocol.varint import Buffer

_SCRATCH_BYTES: Final = 64 << 10


class Receiver:
    """Gives room to receive into, and takes count of what came."""

    __slots__ = ("_bytes_max", "_filled", "_frame", "_scratch")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frame: memoryview | None = None  # a frame whose size is known, not yet all there
        self._filled = 0  # bytes in the frame, or in the scratch area while there is none

    def room(self) -> memoryview:
        """Where the next bytes go; never empty."""
        place = self._scratch if self._frame is None else self._frame
        return place[self._filled :]

    def received(self, size: int) -> list[memoryview]:
        """The frames that are complete now that so many bytes were put into `room`.

        A size no broker would send raises Malformed.
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
        start, end, scratch = 0, self._filled, self._scratch
        while True:
            following = frame_end(
                scratch, start, end, bytes_min=RESPONSE_BYTES_MIN, bytes_max=self._bytes_max
            )
            if following is None or following > end:
                break
            frames.append(memoryview(bytes(scratch[start + SIZE_BYTES : following])))
            start = following
        if following is None:
            self._filled = end - start
            scratch[: self._filled] = bytes(scratch[start:end])
        else:
            start += SIZE_BYTES
            self._frame = memoryview(bytearray(following - start))
            self._filled = end - start
            self._frame[: self._filled] = scratch[start:end]
        return frames


_SIZE: Final = Struct(">i")
_CORRELATION: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_NUMBER_LAST: Final = (1 << 31) - 1
_SOFTWARE: Final = "penstock"
_SOFTWARE_VERSION: Final = "1"  # a broker's metrics show it; it wants letters, digits, dots


class Asked(NamedTuple):
    """A request on its way: its number, None if no answer comes, and the bytes to send."""

    number: int | None
    parts: Parts


class Answer(NamedTuple):
    """What came back for a number."""

    number: int
    response: Any


class _Due(NamedTuple):
    number: int
    api_key: int
    version: int
    read: BodyReader


class Connection:
    """The state of a conversation: what the broker speaks, and which answers are due."""

    def __init__(self, address: Address, settings: LinkSettings) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._login = settings.login
        self._receiver = Receiver(frame_bytes_max=settings.frame_bytes_max)
        self._due: deque[_Due] = deque()
        self._number = 0
        self._offered: dict[int, range] = {}
        self.features: dict[str, int] = {}  # finalized, by name: the level the cluster agreed on

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._due)

    def open(self, nonce: str = "") -> Generator[Request, Any, None]:
        """What must be asked before anything else; each request is answered before the next.

        A login needs a nonce that was never used before.
        """
        yield from self._learn_versions()
        if self._login is not None:
            yield from self._log_in(self._login, nonce)

    def _learn_versions(self) -> Generator[Request, Any, None]:
        answer = yield _ask_versions(last=4)
        if answer.error_code == ErrorCode.unsupported_version:
            told = {row.api_key: row.max_version for row in answer.api_keys}
            answer = yield _ask_versions(last=told.get(Api.API_VERSIONS, 0))
        if answer.error_code != ErrorCode.none:
            raise Refused(
                ErrorCode(answer.error_code), f"broker {self.address} does not say what it speaks"
            )
        self._offered = {
            row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys
        }
        for row in getattr(answer, "finalized_features", ()):
            self.features[row.name] = row.max_version_level

    def _log_in(self, login: Login, nonce: str) -> Generator[Request, Any, None]:
        answer = yield plain(Api.SASL_HANDSHAKE, least=1, mechanism=login.mechanism)
        if answer.error_code != ErrorCode.none:
            raise Refused(
                ErrorCode(answer.error_code),
                f"broker {self.address} does not take {login.mechanism}; it takes"
                f" {', '.join(answer.mechanisms) or 'no login on this port'}",
            )
        conversation = converse(login, nonce)
        message = next(conversation)
        while True:
            answer = yield plain(Api.SASL_AUTHENTICATE, auth_bytes=message)
            if answer.error_code != ErrorCode.none:
                raise Refused(
                    ErrorCode(answer.error_code),
                    f"broker {self.address} does not let {login.username} in:"
                    f" {answer.error_message}",
                )
            try:
                message = conversation.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def version_of(self, request: Request) -> int:
        """The newest version that the broker, we and the asker have in common."""
        if request.api_key == Api.API_VERSIONS:
            return request.last
        ours, theirs = request.versions, self._offered.get(request.api_key, range(0))
        least, stop = max(ours.start, theirs.start), min(ours.stop, theirs.stop)
        if least >= stop:
            raise Refused(ErrorCode.unsupported_version, self._no_version(request, ours, theirs))
        return stop - 1

    def _no_version(self, request: Request, ours: range, theirs: range) -> str:
        name = api_name(request.api_key) or f"API {request.api_key}"
        wanted = f"{ours.start} to {ours.stop - 1}" if ours else "no version"
        if not theirs:
            return f"broker {self.address} does not serve {name}; versions {wanted} are needed"
        return (
            f"broker {self.address} serves {name} in versions {theirs.start} to {theirs.stop - 1},"
            f" {wanted} is needed: the broker is too old or too new for this"
        )

    def ask(self, request: Request) -> Asked:
        """Give a request its version and number; the parts must be sent in the order of asking."""
        version = self.version_of(request)
        body = request.write(version)
        number = self._number
        self._number = number + 1 if number < _NUMBER_LAST else 0
        header = write_request_header(
            api_key=request.api_key,
            api_version=version,
            correlation_id=number,
            client_id=self._client_id,
        )
        size = len(header) + sum(map(len, body))
        start = _SIZE.pack(size) + header
        if not request.is_answered:
            return Asked(None, (start, *body))
        self._due.append(_Due(number, request.api_key, version, request.reader(version)))
        return Asked(number, (start, *body))

    def room(self) -> memoryview:
        """Where the next bytes from the broker go."""
        return self._receiver.room()

    def received(self, size: int) -> list[Answer]:
        """The answers that are complete now that so many bytes were put into `room`."""
        try:
            return [self._answer(frame) for frame in self._receiver.received(size)]
        except Malformed as error:
            raise Malformed(self._explained(error), error.position) from error

    def _answer(self, frame: memoryview) -> Answer:
        (number,) = _CORRELATION.unpack_from(frame)
        if not self._due:
            raise Malformed(f"answer {number} to a question nobody asked", 0)
        due = self._due[0]
        if number != due.number:
            raise Malformed(f"answer {number} where {due.number} was due", 0)
        position = _CORRELATION.size
        if response_has_tags(due.api_key, due.version):
            position = skip_tagged_fields(frame, position, len(frame))
        response, _ = due.read(frame, position)
        self._due.popleft()
        return Answer(number, response)

    def _explained(self, error: Malformed) -> str:
        if not self._offered:
            return (
                f"what answers at {self.address} does not speak Kafka ({error.reason}): check the"
                " port, and whether this listener wants TLS"
            )
        asked = f" to {api_name(self._due[0].api_key)}" if self._due else ""
        return f"broker {self.address} sent rubbish in answer{asked}: {error.reason}"

    def lost(self, reason: str) -> str:
        """What to tell a person when the connection ends with answers due."""
        if not self._offered:
            return (
                f"broker {self.address} ended the connection while greeting ({reason}): check that"
                " it is a Kafka listener, and whether it wants TLS or a login"
            )
        if not self._due:
            return f"broker {self.address} ended the connection ({reason})"
        due = self._due[0]
        return (
            f"broker {self.address} ended the connection ({reason}) before it answered"
            f" {api_name(due.api_key)} version {due.version}"
        )


def _ask_versions(*, last: int) -> Request:
    asked = plain(
        Api.API_VERSIONS,
        client_software_name=_SOFTWARE,
        client_software_version=_SOFTWARE_VERSION,
    )

    def reader(version: int) -> BodyReader:
        newest = response_reader(Api.API_VERSIONS, version)
        oldest = response_reader(Api.API_VERSIONS, 0)

        def read(buffer: Buffer, position: int) -> tuple[Any, int]:
            # A broker that does not know this version says so in version 0.
            if len(buffer) - position >= _ERROR.size:
                (code,) = _ERROR.unpack_from(buffer, position)
                if code == ErrorCode.unsupported_version:
                    return oldest(buffer, position)
            return newest(buffer, position)

        return read

    return Request(int(Api.API_VERSIONS), asked.write, reader, last=last)
