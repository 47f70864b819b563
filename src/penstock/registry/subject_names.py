"""Names of subjects, and the contexts they live in.

`:.eu:orders-value` is the subject `orders-value` in the context `.eu`. The default context `.` is
never written out, so every subject has one name only. `:.eu:` alone is the context itself, which
has settings of its own.
"""

from typing import Final, NewType

from penstock.registry.errors import invalid_subject
from penstock.schemas.readers import READERS_CONTEXT

Subject = NewType("Subject", str)  # in its one form

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"  # above all contexts: settings only
ANY_CONTEXT: Final = ":*:"  # in prefixes
_RESERVED: Final = frozenset(("__GLOBAL", "__EMPTY"))


def split(name: str) -> tuple[str, str]:
    """The context and the name inside it."""
    if not name.startswith(":."):
        return DEFAULT_CONTEXT, name
    context, _, local = name[1:].partition(":")
    return context, local


def join(context: str, local: str) -> Subject:
    """The one name of a subject."""
    return Subject(local if context == DEFAULT_CONTEXT else f":{context}:{local}")


def normal(name: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """The one form of a name that may leave its context to where it is said."""
    if name.startswith(":."):
        return join(*split(name))
    return join(context, name)


def context_of(name: str) -> str:
    """Where the subject lives."""
    return split(name)[0]


def checked(name: str) -> Subject:
    """The subject, if it is one that may be registered under."""
    context, local = split(name)
    if not local or local in _RESERVED or context == GLOBAL_CONTEXT or _has_control(name):
        raise invalid_subject(name)
    return join(context, local)


def setting_key(name: str | None) -> str | None:
    """What settings are stored under: None is the plain global, which `:.:` means as well."""
    if name is None:
        return None
    if _has_control(name) or not name:
        raise invalid_subject(name)
    context, local = split(name)
    if local in _RESERVED or (context == GLOBAL_CONTEXT and local):
        raise invalid_subject(name)
    return join(context, local) or None


def scopes(name: str | None) -> list[str | None]:
    """Where settings for a name are looked for, nearest first. None is the plain global."""
    top = [f":{GLOBAL_CONTEXT}:"]
    if name is None:
        return [None, *top]
    context, local = split(name)
    around = [None] if context == DEFAULT_CONTEXT else [f":{context}:"]
    if context == GLOBAL_CONTEXT:
        around = []
    return [*([join(context, local)] if local else []), *around, *top]


def is_hidden(context: str) -> bool:
    """Whether a context is listed only if it is named: registered readers are not subjects."""
    return context == READERS_CONTEXT


def matches_prefix(subject: Subject, prefix: str) -> bool:
    """Whether a subject is under a prefix, which may name a context, or any that is not hidden."""
    of_subject, name = split(subject)
    if prefix.startswith(ANY_CONTEXT):
        return not is_hidden(of_subject) and name.startswith(prefix.removeprefix(ANY_CONTEXT))
    context, local = split(prefix)
    return of_subject == context and name.startswith(local)


def context_from_path(segment: str) -> str:
    """A context as people write it in a path: the leading dot may be missing."""
    plain = segment.strip(":")
    return plain if plain.startswith(".") else f".{plain}"


def _has_control(name: str) -> bool:
    return any(character < " " or character == "\x7f" for character in name)
