"""The incompatible changes between two Protobuf schemas, by Confluent's rules and in its words.

Fields are compared by number, in whichever oneof they are. Types that the files define are compared
in place; imported types are compared where a field uses them, unless both schemas import them from
the same version. Groups are not compared: Confluent has no rule for them. Every field that uses an
imported type refers to its changes and does not copy them, so there may be far more changes than
can be listed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.schemas.compare_limits import StepBudget
from penstock.schemas.model import Difference, Reference
from penstock.schemas.protobuf.tree import Enum, Field, MapType, Message, ProtoFile
from penstock.schemas.protobuf.types import (
    KnownType,
    Names,
    ResolvedType,
    Shapes,
    reference_of,
    resolve_type,
)

_REASONS: Final[Mapping[str, str]] = {
    "PACKAGE_CHANGED": (
        "The package at '{}' in the %(reader)s schema does not match the package in the "
        "%(writer)s schema"
    ),
    "MESSAGE_REMOVED": (
        "The %(reader)s schema is missing a MESSAGE type at path '{}' in the %(writer)s schema"
    ),
    "FIELD_KIND_CHANGED": (
        "The type of a field at path '{}' in the %(reader)s schema does not match the "
        "%(writer)s schema"
    ),
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{}' in the %(reader)s schema does not match its kind "
        "in the %(writer)s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{}' in the %(reader)s schema does not match its type "
        "in the %(writer)s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{}' in the %(reader)s schema does not match its "
        "label in the %(writer)s schema"
    ),
    # The two blanks are Confluent's; people match on the text.
    "REQUIRED_FIELD_ADDED": (
        "A required field  at path '{}' in the %(reader)s schema is missing in the "
        "%(writer)s schema"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The %(reader)s schema is missing a required field at path: '{}' in the %(writer)s schema"
    ),
    "ONEOF_FIELD_REMOVED": (
        "The %(reader)s schema is missing a oneof field at path '{}' in the %(writer)s schema"
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{}' in the %(reader)s schema are outside a oneof "
        "in the %(writer)s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{}' in the %(reader)s schema is outside an existing oneof "
        "in the %(writer)s schema"
    ),
}

_Type: TypeAlias = str | MapType
_Named = TypeVar("_Named", Message, Enum)


class _Change(NamedTuple):
    """One incompatible change, by Confluent's name for it."""

    kind: str
    steps: tuple[str, ...]

    def as_difference(self) -> Difference:
        path = "#/" + "/".join(self.steps)
        return Difference(self.kind, path, _REASONS[self.kind].format(path))


# A nested list has the changes of an imported type; it is never empty. Empty: compatible.
_Changes: TypeAlias = "list[_Change | _Changes]"


class ComparedSchema(NamedTuple):
    """One of the two schemas, with its names resolved."""

    file: ProtoFile
    names: Names
    references: tuple[Reference, ...]
    shapes: Shapes  # of the file's own messages

    def reference_of(self, known: KnownType) -> tuple[str, int] | None:
        """The subject and version of a type; None if only a reference of a reference has it."""
        return reference_of(known, self.references)


def incompatible_changes(writer: ComparedSchema, reader: ComparedSchema) -> Iterator[Difference]:
    """The changes from the writer's schema to the reader's that make events unreadable.

    Take the first ones only. Raises BudgetExceededError if the two cannot be compared.
    """
    waiting: list[Any] = [_Comparison(writer, reader).run()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, _Change):
            yield part.as_difference()
        else:
            waiting += reversed(part)


class _Scope(NamedTuple):
    """The position of the comparison: its path, and the scope that names are resolved in."""

    path: tuple[str, ...]
    names: tuple[str, ...]
    old_package: str
    new_package: str

    def at(self, step: str) -> "_Scope":
        """One step down the path only."""
        return _Scope((*self.path, step), self.names, self.old_package, self.new_package)

    def inside(self, name: str) -> "_Scope":
        """Inside a named type."""
        return self._replace(path=(*self.path, name), names=(*self.names, name))


class _Comparison:
    def __init__(self, old: ComparedSchema, new: ComparedSchema) -> None:
        self._old = old
        self._new = new
        self._budget = StepBudget()
        self._changes: _Changes = []
        self._in_progress: set[int] = set()  # ids of the old messages that are being compared
        self._imported: dict[tuple[str, str], _Changes] = {}

    def run(self) -> _Changes:
        old, new = self._old.file, self._new.file
        scope = _Scope((), (), self._old.names.package, self._new.names.package)
        if old.package != new.package:
            self._report("PACKAGE_CHANGED", scope)
        self._compare_types(scope, (old.messages, old.enums), (new.messages, new.enums))
        return self._changes

    def _report(self, kind: str, scope: _Scope) -> None:
        if kind in _REASONS:  # all others are compatible
            self._changes.append(_Change(kind, scope.path))

    def _compare_types(
        self,
        scope: _Scope,
        old: tuple[tuple[Message, ...], tuple[Enum, ...]],
        new: tuple[tuple[Message, ...], tuple[Enum, ...]],
    ) -> None:
        old_messages, new_messages = _by_name(old[0]), _by_name(new[0])
        for name in _keys(old_messages, new_messages):
            before, after = old_messages.get(name), new_messages.get(name)
            if not self._is_unchanged(before, after):
                self._compare_message_named(scope.inside(name), before, after)
        old_enums, new_enums = _by_name(old[1]), _by_name(new[1])
        for name in _keys(old_enums, new_enums):
            self._compare_enum(scope.inside(name), old_enums.get(name), new_enums.get(name))

    def _is_unchanged(
        self, old: tuple[int, Message] | None, new: tuple[int, Message] | None
    ) -> bool:
        """Whether a message is the same at the same position."""
        if old is None or new is None or old[0] != new[0]:
            return False
        return self._have_same_shape(old[1], new[1])

    def _compare_message_named(
        self, scope: _Scope, old: tuple[int, Message] | None, new: tuple[int, Message] | None
    ) -> None:
        if new is None:
            assert old is not None
            if not old[1].is_map_entry:
                self._report("MESSAGE_REMOVED", scope)
        elif old is None:
            if not new[1].is_map_entry:
                self._report("MESSAGE_ADDED", scope)
        else:
            self._compare_messages(scope, old[1], new[1])
            if old[0] != new[0]:
                self._report("MESSAGE_MOVED", scope)

    def _compare_enum(
        self, scope: _Scope, old: tuple[int, Enum] | None, new: tuple[int, Enum] | None
    ) -> None:
        if new is None:
            self._report("ENUM_REMOVED", scope)
            return
        if old is None:
            self._report("ENUM_ADDED", scope)
            return
        old_values = {value.number: value.name for value in old[1].values}
        new_values = {value.number: value.name for value in new[1].values}
        for number in sorted(old_values.keys() | new_values.keys()):
            here = scope.at(str(number))
            if number not in new_values:
                self._report("ENUM_CONST_REMOVED", here)
            elif number not in old_values:
                self._report("ENUM_CONST_ADDED", here)
            elif old_values[number] != new_values[number]:
                self._report("ENUM_CONST_CHANGED", here)

    def _compare_messages(self, scope: _Scope, old: Message, new: Message) -> None:
        if self._have_same_shape(old, new):
            return
        if id(old) not in self._in_progress:
            self._in_progress.add(id(old))
            before, after = _Members(old), _Members(new)
            self._budget.spend(1 + len(before.fields) + len(after.fields))
            self._compare_members(scope, before, after)
            self._compare_types(scope, (old.nested, old.enums), (new.nested, new.enums))
            self._in_progress.remove(id(old))

    def _have_same_shape(self, old: Message | Field, new: Message | Field) -> bool:
        if old is new:  # scalar, or of the same import
            return True
        shape = self._old.shapes.hash_of(old)
        return shape is not None and shape == self._new.shapes.hash_of(new)

    def _compare_members(self, scope: _Scope, old: "_Members", new: "_Members") -> None:
        for name, members in new.oneofs.items():
            self._compare_origins(scope.at(name), members, old)
        for name in sorted(old.oneofs.keys() | new.oneofs.keys()):
            if name not in new.oneofs:
                self._report("ONEOF_REMOVED", scope.at(name))
            elif name not in old.oneofs:
                self._report("ONEOF_ADDED", scope.at(name))
        removed_oneofs = old.oneofs_removed_entirely(new)
        for number in sorted(old.fields.keys() | new.fields.keys()):
            if number not in new.fields:
                self._report_removed(scope, old, number, removed_oneofs)
            elif number not in old.fields:
                self._report_added(scope, new, number)
            else:
                self._compare_field(scope, old, new, number)

    def _compare_origins(self, scope: _Scope, members: Iterable[int], old: "_Members") -> None:
        """Report fields that could be set together and now exclude each other."""
        oneofs = {old.oneof_of[number] for number in members if number in old.oneof_of}
        alone = sum(number in old.fields and number not in old.oneof_of for number in members)
        if len(oneofs) + alone > 1:
            kind = (
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            )
            self._report(kind, scope)

    def _report_removed(
        self, scope: _Scope, old: "_Members", number: int, removed_oneofs: frozenset[str]
    ) -> None:
        oneof = old.oneof_of.get(number)
        if oneof is None:
            required = old.fields[number].label == "required"
            kind = "REQUIRED_FIELD_REMOVED" if required else "FIELD_REMOVED"
            self._report(kind, scope.at(str(number)))
        elif oneof not in removed_oneofs:
            self._report("ONEOF_FIELD_REMOVED", scope.at(oneof).at(str(number)))

    def _report_added(self, scope: _Scope, new: "_Members", number: int) -> None:
        oneof = new.oneof_of.get(number)
        if oneof is None:
            required = new.fields[number].label == "required"
            kind = "REQUIRED_FIELD_ADDED" if required else "FIELD_ADDED"
            self._report(kind, scope.at(str(number)))
        else:
            self._report("ONEOF_FIELD_ADDED", scope.at(oneof).at(str(number)))

    def _compare_field(self, scope: _Scope, old: "_Members", new: "_Members", number: int) -> None:
        before, after = old.fields[number], new.fields[number]
        oneof = new.oneof_of.get(number)
        if self._have_same_shape(before, after) and (oneof is None) == (number not in old.oneof_of):
            return
        if oneof is None:
            here = scope.at(str(number))
            if number in old.oneof_of:
                self._report("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", here)
        else:
            here = scope.at(oneof).at(str(number))
        if before.name != after.name:
            self._report("FIELD_NAME_CHANGED", here)
        labels = (before.label, after.label)
        self._compare_field_types(here, labels, before.type, after.type)

    def _compare_field_types(
        self, scope: _Scope, labels: tuple[str | None, str | None], old: _Type, new: _Type
    ) -> None:
        before = resolve_type(self._old.names, old, scope.names, scope.old_package)
        after = resolve_type(self._new.names, new, scope.names, scope.new_package)
        if before.kind != after.kind:
            self._report("FIELD_KIND_CHANGED", scope)
        elif before.kind == "scalar":
            self._compare_scalars(scope, labels, before.scalar, after.scalar)
        elif before.map is not None and after.map is not None:
            for part in (0, 1):
                self._compare_field_types(scope, (None, None), before.map[part], after.map[part])
        else:
            self._compare_named(scope, before, after)

    def _compare_scalars(
        self, scope: _Scope, labels: tuple[str | None, str | None], old: str, new: str
    ) -> None:
        if old != new:
            self._report("FIELD_SCALAR_KIND_CHANGED", scope)
        elif None not in labels and labels[0] != labels[1]:
            is_text = old == "string or bytes"
            self._report(
                "FIELD_STRING_OR_BYTES_LABEL_CHANGED" if is_text else "FIELD_NUMERIC_LABEL_CHANGED",
                scope,
            )

    def _compare_named(self, scope: _Scope, old: ResolvedType, new: ResolvedType) -> None:
        if old.known is None or new.known is None:
            if old.written != new.written:
                self._report("FIELD_NAMED_TYPE_CHANGED", scope)
            return
        local_name = _local_name(old.name, old.known)
        if local_name != _local_name(new.name, new.known):
            self._report("FIELD_NAMED_TYPE_CHANGED", scope)
            return
        old_reference = self._old.reference_of(old.known)
        if old_reference is None or old_reference != self._new.reference_of(new.known):
            changes = self._imported_changes(local_name, old, new)
            if changes:
                self._changes.append(changes)
                self._report("FIELD_NAMED_TYPE_CHANGED", scope)

    def _imported_changes(self, local_name: str, old: ResolvedType, new: ResolvedType) -> _Changes:
        """The changes in an imported type; compared once for each pair."""
        pair = (old.name, new.name)
        if pair in self._imported:
            return self._imported[pair]
        self._imported[pair] = []  # a type that contains itself adds nothing
        assert old.known is not None
        assert new.known is not None
        before, after = old.known.element, new.known.element
        outer, self._changes = self._changes, []
        if isinstance(before, Message) and isinstance(after, Message) and before is not after:
            path = tuple(local_name.split("."))
            scope = _Scope(path, path, old.known.package, new.known.package)
            self._compare_messages(scope, before, after)
        changes, self._changes = self._changes, outer
        self._imported[pair] = changes
        return changes


class _Members:
    """The fields of a message by number, and the oneof of each."""

    def __init__(self, message: Message) -> None:
        self.fields: dict[int, Field] = {field.number: field for field in message.fields}
        self.oneof_of: dict[int, str] = {}
        self.oneofs: dict[str, list[int]] = {}
        for oneof in message.oneofs:
            self.oneofs[oneof.name] = [field.number for field in oneof.fields]
            for field in oneof.fields:
                self.fields[field.number] = field
                self.oneof_of[field.number] = oneof.name

    def oneofs_removed_entirely(self, new: "_Members") -> frozenset[str]:
        """Oneofs of which neither the name nor any member remains."""
        return frozenset(
            name
            for name, members in self.oneofs.items()
            if name not in new.oneofs and not any(number in new.fields for number in members)
        )


def _local_name(full_name: str, known: KnownType) -> str:
    return full_name.removeprefix(f"{known.package}.") if known.package else full_name


def _by_name(types: tuple[_Named, ...]) -> dict[str, tuple[int, _Named]]:
    return {type_.name: (index, type_) for index, type_ in enumerate(types)}


def _keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [*old, *(name for name in new if name not in old)]
