"""Lints of Avro schemas: changes that resolve without an error and can still mislead a reader."""

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

RENAMES_MAX: Final = 20  # removed fields of a record that are compared with a new field
_NUMBERS: Final = (AvroType.INT, AvroType.LONG)
_LOSSY: Final = {
    (AvroType.INT, AvroType.FLOAT): "an int above 16 777 216 does not fit a float exactly",
    (AvroType.LONG, AvroType.FLOAT): "a long above 16 777 216 does not fit a float exactly",
    (AvroType.LONG, AvroType.DOUBLE): "a long above 2^53 does not fit a double exactly",
    (AvroType.BYTES, AvroType.STRING): "bytes that are not UTF-8 cannot be read as a string",
}


def lints(proposed: AvroSchema, earlier: AvroSchema | None) -> Iterator[Lint]:
    """The warnings about `proposed` as the successor of `earlier`."""
    yield from _Alone().lints(proposed.root, "")
    if earlier is not None:
        # Suppressed: the types refer to each other in too many combinations.
        with suppress(BudgetExceededError, RecursionError):
            yield from _Change().lints(proposed.root, earlier.root, "")
        yield from _documentation_only(proposed, earlier)


class _Alone:
    """Lints of one schema; each named type is visited once."""

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
                f"the enum {node.full_name} has no default: every new symbol will break readers "
                "that are not upgraded yet",
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
    """Lints of a change; each pair of types is compared once."""

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
        """Compare branches of the same name; promotions inside a union are ignored."""
        before = {branch.full_name: branch for branch in _branches_of(old)}
        self._budget.spend(len(before))
        for index, branch in enumerate(_branches_of(new)):
            where = f"{path}/{index}" if isinstance(new, Union) else path
            if branch.full_name in before:
                yield from self.lints(branch, before[branch.full_name], where)

    def _fields(self, new: Record, old: Record, path: str) -> Iterator[Lint]:
        self._budget.spend(len(new.fields) + len(old.fields))
        read = new.by_name.keys() | {alias for field in new.fields for alias in field.aliases}
        removed = [field for field in old.fields if field.name not in read]
        for index, field in enumerate(new.fields):
            where = f"{path}/fields/{index}"
            names = (field.name, *field.aliases)
            before = next((old.by_name[name] for name in names if name in old.by_name), None)
            if before is None:
                yield from _renamed(field, removed, where)
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
            f"the logical type of the field {field.name} is beside its type, where it is ignored",
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
            "Avro before 1.12 and other libraries refuse the schema",
            "put the type of the default first",
        )


def _ignored_logical_type(node: Node, path: str) -> Iterator[Lint]:
    name = node.properties.get(LOGICAL_TYPE)
    if isinstance(name, str) and logical_type(node) is None:
        yield Lint(
            "LOGICAL_TYPE_IGNORED",
            path or "/",
            f"readers ignore the logical type {name} here: unknown, or not allowed on {node.kind}",
            "correct its name, its parameters or the underlying type",
        )


def _logical_type_changed(new: Node, old: Node, path: str) -> Iterator[Lint]:
    after, before = logical_type(new), logical_type(old)
    is_promoted = (old.kind, new.kind) == (AvroType.INT, AvroType.LONG) and after is not None
    if after == before or not (new.kind is old.kind or is_promoted):
        return
    if after is not None and before is not None and after.name == before.name == "decimal":
        yield from _decimal_changed(after, before, path)
        return
    change = f"the meaning changes from {_logical_name(before, old)} to {_logical_name(after, new)}"
    if after is None or before is None:
        effect = "the encoding stays the same, so readers see the stored number or bytes"
    elif old.kind in _NUMBERS and number_meaning(old, new) is not None:
        effect = "Penstock converts older events, other clients read the stored number"
    else:
        effect = "Penstock cannot read older events, and other clients read wrong values"
    yield Lint(
        "LOGICAL_TYPE_CHANGED",
        path or "/",
        f"{change}: {effect}",
        "add a field of the new type, and remove the old one later",
    )


def _decimal_changed(after: LogicalType, before: LogicalType, path: str) -> Iterator[Lint]:
    if after.scale != before.scale:
        yield Lint(
            "DECIMAL_SCALE_CHANGED",
            path or "/",
            f"the scale changes from {before.scale} to {after.scale}: Penstock converts older "
            "events and refuses a number that would lose digits; other clients read the same "
            "bytes as another number",
            "add a field with the new scale, and remove the old one later",
        )
    elif after.precision < before.precision:
        yield Lint(
            "DECIMAL_PRECISION_REDUCED",
            path or "/",
            f"the precision changes from {before.precision} to {after.precision}: numbers in "
            "older events may be too large",
            "keep the larger precision",
        )


def _logical_name(logical: LogicalType | None, node: Node) -> str:
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
            f"{old.full_name} becomes {new.full_name}: some libraries match full names only, and "
            "cannot find a generated class of the old name",
            f'add "{old.full_name}" to the aliases',
        )


def _symbols_removed(new: Enum, old: Enum, path: str) -> Iterator[Lint]:
    remaining = set(new.symbols)
    removed = [symbol for symbol in old.symbols if symbol not in remaining]
    if removed and new.default is not None:
        yield Lint(
            "ENUM_SYMBOL_REMOVED",
            path or "/",
            f"events with {shortened(', '.join(removed))} are read as {new.default}, without an "
            "error",
            "keep the symbols until no such event remains",
        )


def _renamed(field: Field, removed: list[Field], path: str) -> Iterator[Lint]:
    for old in removed[:RENAMES_MAX]:
        if equivalent(field.type, old.type):
            yield Lint(
                "RENAMED_WITHOUT_ALIAS",
                path,
                f"the field {old.name} was removed and {field.name} of the same type was added: if "
                "this is a new name, readers get the default instead of the value",
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
            f"the default of the field {new.name} changes: old and new readers see different "
            "values in the same old event",
            "keep the default, or make sure that no reader depends on it",
        )


def _documentation_only(proposed: AvroSchema, earlier: AvroSchema) -> Iterator[Lint]:
    is_same = same_except_documentation(proposed.root, earlier.root)
    if is_same and proposed.canonical != earlier.canonical:
        yield Lint(
            "DOCUMENTATION_ONLY",
            "/",
            "only documentation changes, but every consumer must fetch a new schema",
            "combine this change with the next change of the schema",
        )
