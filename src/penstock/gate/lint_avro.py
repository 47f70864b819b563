"""Avro changes that resolve without an error and still mislead a reader."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from penstock.gate.lint import Lint
from penstock.schemas.avro.equality import equivalent, same_except_documentation, same_json
from penstock.schemas.avro.schema import AvroSchema
from penstock.schemas.avro.tree import (
    Absent,
    Array,
    AvroType,
    Enum,
    Field,
    Map,
    Named,
    Node,
    Record,
    Union,
)
from penstock.schemas.avro.types import LOGICAL_TYPE, LogicalType, is_valid_default, logical_type
from penstock.schemas.compare_limits import BudgetExceededError, StepBudget, shortened
from penstock.serde.avro.logical_types import number_meaning

RENAMES_MAX: Final = 20  # removed fields of a record that a new one is compared with
_NUMBERS: Final = (AvroType.INT, AvroType.LONG)
_LOSSY: Final = {
    (AvroType.INT, AvroType.FLOAT): "an int above 16 777 216 does not fit a float exactly",
    (AvroType.LONG, AvroType.FLOAT): "a long above 16 777 216 does not fit a float exactly",
    (AvroType.LONG, AvroType.DOUBLE): "a long above 2^53 does not fit a double exactly",
    (AvroType.BYTES, AvroType.STRING): "bytes that are not UTF-8 cannot be read as a string",
}


def lints(proposed: AvroSchema, earlier: AvroSchema | None) -> Iterator[Lint]:
    """What to think twice about before `proposed` follows `earlier`."""
    yield from _Alone().lints(proposed.root, "")
    if earlier is not None:
        with suppress(
            BudgetExceededError, RecursionError
        ):  # they refer to each other in too many ways
            yield from _Change().lints(proposed.root, earlier.root, "")
        yield from _documentation_only(proposed, earlier)


class _Alone:
    """What is odd in a schema by itself; each named type is looked at once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def lints(self, node: Node, path: str) -> Iterator[Lint]:
        if isinstance(node, Named):
            if id(node) in self._seen:
                return
            self._seen.add(id(node))
        yield from _ignored_logical_type(node, path)
        if isinstance(node, Enum) and node.default is None:
            yield Lint(
                "ENUM_WITHOUT_DEFAULT",
                path or "/",
                f"the enum {node.full_name} has no default: no symbol can ever be added without "
                "breaking readers that have not been upgraded",
                'add a symbol such as "UNKNOWN" and make it the "default" of the enum',
            )
        if isinstance(node, Record):
            for index, field in enumerate(node.fields):
                where = f"{path}/fields/{index}"
                yield from _field_alone(field, where)
                yield from self.lints(field.type, f"{where}/type")
        elif isinstance(node, Array):
            yield from self.lints(node.items, f"{path}/items")
        elif isinstance(node, Map):
            yield from self.lints(node.values, f"{path}/values")
        elif isinstance(node, Union):
            for index, branch in enumerate(node.branches):
                yield from self.lints(branch, f"{path}/{index}")


class _Change:
    """What is odd in the step from one schema to the next; each pair is looked at once."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._budget = StepBudget()

    def lints(self, new: Node, old: Node, path: str) -> Iterator[Lint]:
        if (id(new), id(old)) in self._seen:
            return
        self._budget.spend()
        self._seen.add((id(new), id(old)))
        if isinstance(new, Union) or isinstance(old, Union):
            yield from self._branches(new, old, path)
            return
        yield from _lossy(new, old, path)
        yield from _logical_type_changed(new, old, path)
        if isinstance(new, Record) and isinstance(old, Record):
            yield from _name_changed(new, old, path)
            yield from self._fields(new, old, path)
        elif isinstance(new, Enum) and isinstance(old, Enum):
            yield from _name_changed(new, old, path)
            yield from _symbols_removed(new, old, path)
        elif isinstance(new, Array) and isinstance(old, Array):
            yield from self.lints(new.items, old.items, f"{path}/items")
        elif isinstance(new, Map) and isinstance(old, Map):
            yield from self.lints(new.values, old.values, f"{path}/values")

    def _branches(self, new: Node, old: Node, path: str) -> Iterator[Lint]:
        """Branches are compared with their namesakes; a promotion inside a union is not guessed."""
        before = {branch.full_name: branch for branch in _branches_of(old)}
        self._budget.spend(len(before))
        for index, branch in enumerate(_branches_of(new)):
            where = f"{path}/{index}" if isinstance(new, Union) else path
            if branch.full_name in before:
                yield from self.lints(branch, before[branch.full_name], where)

    def _fields(self, new: Record, old: Record, path: str) -> Iterator[Lint]:
        self._budget.spend(len(new.fields) + len(old.fields))
        read = new.by_name.keys() | {alias for field in new.fields for alias in field.aliases}
        gone = [field for field in old.fields if field.name not in read]
        for index, field in enumerate(new.fields):
            where = f"{path}/fields/{index}"
            names = (field.name, *field.aliases)
            before = next((old.by_name[name] for name in names if name in old.by_name), None)
            if before is None:
                yield from _renamed(field, gone, where)
                continue
            yield from _field_changed(field, before, where)
            yield from self.lints(field.type, before.type, f"{where}/type")


def _branches_of(node: Node) -> list[Node]:
    return node.branches if isinstance(node, Union) else [node]


def _field_alone(field: Field, path: str) -> Iterator[Lint]:
    if isinstance(field.properties.get(LOGICAL_TYPE), str):
        yield Lint(
            "LOGICAL_TYPE_ON_FIELD",
            path,
            f"the logical type of the field {field.name} stands beside its type and is ignored",
            'move "logicalType" into an object that is the "type" of the field',
        )
    first = (
        field.type.branches[0] if isinstance(field.type, Union) and field.type.branches else None
    )
    default = field.default
    if (
        first is not None
        and not isinstance(default, Absent)
        and not is_valid_default(first, default)
    ):
        yield Lint(
            "DEFAULT_NOT_OF_FIRST_BRANCH",
            path,
            f"the default of the field {field.name} does not fit the first type of its union; "
            "Avro before 1.12 and other languages refuse the schema",
            "put the type of the default first",
        )


def _ignored_logical_type(node: Node, path: str) -> Iterator[Lint]:
    name = node.properties.get(LOGICAL_TYPE)
    if isinstance(name, str) and logical_type(node) is None:
        yield Lint(
            "LOGICAL_TYPE_IGNORED",
            path or "/",
            f"readers ignore the logical type {name} here: unknown, or not allowed on {node.kind}",
            "correct its name or parameters, or the type it stands on",
        )


def _logical_type_changed(new: Node, old: Node, path: str) -> Iterator[Lint]:
    after, before = logical_type(new), logical_type(old)
    is_promoted = (old.kind, new.kind) == (AvroType.INT, AvroType.LONG) and after is not None
    if after == before or not (new.kind is old.kind or is_promoted):
        return
    if after is not None and before is not None and after.name == before.name == "decimal":
        yield from _decimal_changed(after, before, path)
        return
    change = f"the meaning changes from {_said(before, old)} to {_said(after, new)}"
    if after is None or before is None:
        told = "the bytes stay the same: readers take a number or bytes at their word"
    elif old.kind in _NUMBERS and number_meaning(old, new) is not None:
        told = "Penstock converts what was written before, other clients take the bytes as they are"
    else:
        told = "what was written before cannot be read, and other clients read it wrongly"
    yield Lint(
        "LOGICAL_TYPE_CHANGED",
        path or "/",
        f"{change}: {told}",
        "add a field of the new type and retire the old one",
    )


def _decimal_changed(after: LogicalType, before: LogicalType, path: str) -> Iterator[Lint]:
    if after.scale != before.scale:
        yield Lint(
            "DECIMAL_SCALE_CHANGED",
            path or "/",
            f"the scale changes from {before.scale} to {after.scale}: Penstock converts what was "
            "written before, and refuses a number that would lose digits; to other clients the "
            "same bytes now mean another number",
            "add a field with the new scale and retire the old one",
        )
    elif after.precision < before.precision:
        yield Lint(
            "DECIMAL_PRECISION_REDUCED",
            path or "/",
            f"the precision falls from {before.precision} to {after.precision}: numbers "
            "written before may not fit",
            "keep the larger precision",
        )


def _said(logical: LogicalType | None, node: Node) -> str:
    return f"plain {node.kind}" if logical is None else logical.name


def _lossy(new: Node, old: Node, path: str) -> Iterator[Lint]:
    loss = _LOSSY.get((old.kind, new.kind))
    if loss is not None:
        yield Lint(
            "LOSSY_PROMOTION",
            path or "/",
            f"{old.kind} becomes {new.kind}: {loss}",
            "keep the type, or add a field of the new type",
        )


def _name_changed(new: Named, old: Named, path: str) -> Iterator[Lint]:
    if new.full_name != old.full_name and old.full_name not in new.alias_names:
        yield Lint(
            "NAMESPACE_CHANGED" if new.name.simple == old.name.simple else "TYPE_RENAMED",
            path or "/",
            f"{old.full_name} becomes {new.full_name}: some languages match full names only, and a "
            "generated class of the old name is not found",
            f'add "{old.full_name}" to the aliases',
        )


def _symbols_removed(new: Enum, old: Enum, path: str) -> Iterator[Lint]:
    kept = set(new.symbols)
    gone = [symbol for symbol in old.symbols if symbol not in kept]
    if gone and new.default is not None:
        yield Lint(
            "ENUM_SYMBOL_REMOVED",
            path or "/",
            f"events that hold {shortened(', '.join(gone))} are read as {new.default}, without an "
            "error",
            "keep the symbols until no such event is left",
        )


def _renamed(field: Field, gone: list[Field], path: str) -> Iterator[Lint]:
    for old in gone[:RENAMES_MAX]:
        if equivalent(field.type, old.type):
            yield Lint(
                "RENAMED_WITHOUT_ALIAS",
                path,
                f"the field {old.name} is gone and {field.name} of the same type has come: if that "
                "is a new name, readers find the default where the value was",
                f'add "aliases": ["{old.name}"] to the field {field.name}',
            )
            return


def _field_changed(new: Field, old: Field, path: str) -> Iterator[Lint]:
    if isinstance(new.default, Absent) or isinstance(old.default, Absent):
        return
    if not same_json(new.default, old.default):
        yield Lint(
            "DEFAULT_CHANGED",
            path,
            f"the default of the field {new.name} changes: the same old event, read by old and "
            "new readers, differs",
            "keep the default, or make sure that no reader depends on it",
        )


def _documentation_only(proposed: AvroSchema, earlier: AvroSchema) -> Iterator[Lint]:
    is_same = same_except_documentation(proposed.root, earlier.root)
    if is_same and proposed.canonical != earlier.canonical:
        yield Lint(
            "DOCUMENTATION_ONLY",
            "/",
            "only documentation changes, and still every consumer has to fetch a new schema",
            "collect such changes until there is another reason for a version",
        )
