"""Names of subjects, and the contexts they belong to.

`:.eu:orders-value` is the subject `orders-value` in the context `.eu`. The default context `.` is
never written, so every subject has one name only. `:.eu:` alone is the context itself, which has
settings of its own.
"""

from typing import Final, NewType

from penstock.registry.errors import invalid_subject
from penstock.schemas.readers import READERS_CONTEXT

Subject = NewType("Subject", str)  # a normal name

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
    """The normal name of a subject."""
    return Subject(local if context == DEFAULT_CONTEXT else f":{context}:{local}")


def normal(name: str, context: str = DEFAULT_CONTEXT) -> Subject:
    """The normal form of a name; without a context it belongs to the given one."""
    if name.startswith(":."):
        return join(*split(name))
    return join(context, name)


def context_of(name: str) -> str:
    """The context of the subject."""
    return split(name)[0]


def checked(name: str) -> Subject:
    """The subject, if schemas may be registered under that name."""
    context, local = split(name)
    if not local or local in _RESERVED or context == GLOBAL_CONTEXT or _has_control(name):
        raise invalid_subject(name)
    return join(context, local)


def setting_key(name: str | None) -> str | None:
    """The scope of settings: None is the global one, which `:.:` means as well."""
    if name is None:
        return None
    if _has_control(name) or not name:
        raise invalid_subject(name)
    context, local = split(name)
    if local in _RESERVED or (context == GLOBAL_CONTEXT and local):
        raise invalid_subject(name)
    return join(context, local) or None


def scopes(name: str | None) -> list[str | None]:
    """The scopes whose settings apply to a name, nearest first. None is the global one."""
    top = [f":{GLOBAL_CONTEXT}:"]
    if name is None:
        return [None, *top]
    context, local = split(name)
    enclosing = [None] if context == DEFAULT_CONTEXT else [f":{context}:"]
    if context == GLOBAL_CONTEXT:
        enclosing = []
    return [*([join(context, local)] if local else []), *enclosing, *top]


def is_hidden(context: str) -> bool:
    """Whether a context is listed only if it is named: declared readers are not subjects."""
    return context == READERS_CONTEXT


def matches_prefix(subject: Subject, prefix: str) -> bool:
    """Whether a subject has a prefix, which may name a context, or any that is not hidden."""
    of_subject, name = split(subject)
    if prefix.startswith(ANY_CONTEXT):
        return not is_hidden(of_subject) and name.startswith(prefix.removeprefix(ANY_CONTEXT))
    context, local = split(prefix)
    return of_subject == context and name.startswith(local)


def context_from_path(segment: str) -> str:
    """A context in a path: the leading dot may be missing."""
    name = segment.strip(":")
    return name if name.startswith(".") else f".{name}"


def _has_control(name: str) -> bool:
    return any(character < " " or character == "\x7f" for character in name)
