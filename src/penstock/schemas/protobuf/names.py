"""What the names in a file mean: its types and extension fields, and those of all it imports.

A name is looked for from the innermost scope outwards, as a whole, in everything that is known;
that is how Confluent's registry reads names, and a valid file means the same either way.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.schemas.protobuf.tree import Enum, Extend, Field, Message, ProtoFile

LOCAL: Final = ""  # the origin of what the file itself defines


class Known(NamedTuple):
    """A type, its package and the import it came by."""

    package: str
    origin: str
    element: Message | Enum


class Names:
    """Everything a file can name. Immutable once made."""

    def __init__(self, file: ProtoFile, imports: Mapping[str, ProtoFile]) -> None:
        self.package = file.package or ""
        self._types: dict[str, Known] = {}
        self._extensions: dict[str, Field] = {}
        for origin, imported in imports.items():
            self._collect(origin, imported)
        self._collect(LOCAL, file)

    def _collect(self, origin: str, file: ProtoFile) -> None:
        package = file.package or ""
        prefix = f"{package}." if package else ""
        self._collect_extensions(prefix, file.extends)
        for enum in file.enums:
            self._types[prefix + enum.name] = Known(package, origin, enum)
        for message in file.messages:
            self._collect_message(prefix, Known(package, origin, message), message)

    def _collect_message(self, prefix: str, known: Known, message: Message) -> None:
        self._types[prefix + message.name] = known
        inner = f"{prefix}{message.name}."
        self._collect_extensions(inner, message.extends)
        for enum in message.enums:
            self._types[inner + enum.name] = known._replace(element=enum)
        groups = [*message.groups, *(one for oneof in message.oneofs for one in oneof.groups)]
        for nested in (*message.nested, *(group.body for group in groups)):
            self._collect_message(inner, known._replace(element=nested), nested)

    def _collect_extensions(self, prefix: str, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                self._extensions[prefix + field.name] = field

    def type_of(self, full_name: str) -> Known:
        """A type by the name that `resolved` gave."""
        return self._types[full_name]

    def extension_of(self, full_name: str) -> Field:
        """An extension field by the name that `resolved_extension` gave."""
        return self._extensions[full_name]

    def resolved(self, name: str, scope: tuple[str, ...], package: str | None = None) -> str | None:
        """The full name of a type, without a dot in front; None if there is none."""
        return _found(self._types, name, self._prefix(scope, package))

    def resolved_extension(self, name: str, scope: tuple[str, ...]) -> str | None:
        """The full name of an extension field."""
        return _found(self._extensions, name, self._prefix(scope, None))

    def _prefix(self, scope: tuple[str, ...], package: str | None) -> list[str]:
        home = self.package if package is None else package
        return [*home.split("."), *scope] if home else list(scope)


def _found(known: Mapping[str, object], name: str, prefix: list[str]) -> str | None:
    if name.startswith("."):
        return name[1:] if name[1:] in known else None
    for length in range(len(prefix), -1, -1):
        full_name = ".".join((*prefix[:length], name))
        if full_name in known:
            return full_name
    return None
