"""Which media types a body may have: only JSON, because a web page of any site can send the others.

A page can post text and forms to any server without asking the browser for permission.
"""

from collections.abc import Collection, Mapping
from typing import Final

JSON: Final = "application/json"
METHODS_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))


def refused_type(headers: Mapping[bytes, bytes], accepted: Collection[str], use: str) -> str | None:
    """Why a body's type is refused; None if it may be read. `use` names the types to send."""
    given = headers.get(b"content-type")
    if given is None:
        is_empty = headers.get(b"content-length", b"0").strip() == b"0"
        if is_empty and b"transfer-encoding" not in headers:
            return None
        what = "no content type"
    else:
        if given.lower().split(b";")[0].strip().decode("latin-1") in accepted:
            return None
        what = f"the content type {given[:200].decode('latin-1')}"
    return (
        f"Unsupported Media Type: the body has {what}; send it as {use} "
        '(with curl: -H "Content-Type: application/json")'
    )
