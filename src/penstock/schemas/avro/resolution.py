"""Why one schema cannot read what another wrote: Avro's schema resolution, as a list of reasons.

Results, kinds, paths and their order are those of the Java library's compatibility checker,
including its quirks: records match by their short names, a pair that is being compared counts as
compatible, and a pair that was reported once is reported with the same path again. One exception:
in the search for a union's branch that reads a type, branches of another name or kind are not
compared at all.

Each pair is compared once, and refers to the reasons of its parts instead of copying them. Texts
are written at the end, for the first reasons only. So the cost follows the number of pairs, which
`StepBudget` limits, and not the number of paths that lead to a pair.
"""

from collections.abc import Callable, Iterator, Set
from typing import Any, Final, TypeAlias

from penstock.schemas.avro.canonical import print_start
from penstock.schemas.avro.tree import (
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Node,
    Primitive,
    Record,
    Union,
)
from penstock.schemas.compare_limits import (
    TEXT_CHARACTERS_MAX,
    StepBudget,
    UncheckableError,
    shortened,
)
from penstock.schemas.model import Difference

PAIR_STEPS: Final = 3  # of the budget, to compare two types without their parts
_PROMOTIONS: Final = {
    AvroType.LONG: frozenset((AvroType.INT,)),
    AvroType.FLOAT: frozenset((AvroType.INT, AvroType.LONG)),
    AvroType.DOUBLE: frozenset((AvroType.INT, AvroType.LONG, AvroType.FLOAT)),
    AvroType.BYTES: frozenset((AvroType.STRING,)),
    AvroType.STRING: frozenset((AvroType.BYTES,)),
}
_NEVER: Final[frozenset[AvroType]] = frozenset()
_NONE: Final[frozenset[int]] = frozenset()

# Steps from a node up to the root; long paths share their beginnings.
_Path: TypeAlias = "tuple[()] | tuple[_Path, str]"


class _Reason:
    """One incompatibility, and how to write its difference."""

    __slots__ = ("_arguments", "_path", "_write", "_written")

    def __init__(self, write: Callable[..., Difference], path: _Path, *arguments: object) -> None:
        self._write = write
        self._path = path
        self._arguments = arguments
        self._written: Difference | None = None

    def written(self) -> Difference:
        if self._written is None:
            self._written = self._write(_joined(self._path), *self._arguments)
        return self._written


# Empty: compatible. A nested tuple holds the reasons of a part and may be shared.
_Reasons: TypeAlias = "tuple[_Reason | _Reasons, ...]"


def differences(reader: Node, writer: Node) -> Iterator[Difference]:
    """The reasons why `reader` cannot read what `writer` wrote; none if it can."""
    reasons = _Resolution().compare(reader, writer, ())
    return (reason.written() for reason in _flat(reasons))


def _flat(reasons: _Reasons) -> Iterator[_Reason]:
    waiting: list[Any] = [reasons]
    while waiting:
        part = waiting.pop()
        if isinstance(part, _Reason):
            yield part
        else:
            waiting += reversed(part)


def _joined(path: _Path) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps))


class _Branches:
    """The branches of a union, by the names that they can read."""

    def __init__(self, union: Union) -> None:
        self._branches = union.branches
        self._positions = {id(branch): position for position, branch in enumerate(union.branches)}
        self._unnamed: list[int] = []
        self._named: dict[tuple[AvroType, str], list[int]] = {}
        for position, branch in enumerate(union.branches):
            if isinstance(branch, Named):
                # Aliases are full names; the colon distinguishes them from short names.
                aliases = [f":{alias}" for alias in branch.alias_names]
                for name in {branch.name.simple, *aliases}:
                    self._named.setdefault((branch.kind, name), []).append(position)
            else:
                self._unnamed.append(position)

    def may_read(self, writer: Node, in_progress: Set[int]) -> list[Node]:
        """Branches worth comparing with `writer`, and those that are being compared with it."""
        positions = {self._positions[key] for key in in_progress if key in self._positions}
        if isinstance(writer, Named):
            positions.update(self._named.get((writer.kind, writer.name.simple), ()))
            positions.update(self._named.get((writer.kind, f":{writer.full_name}"), ()))
        else:
            positions.update(self._unnamed)
        return [self._branches[position] for position in sorted(positions)]


class _Resolution:
    def __init__(self) -> None:
        # By the ids of the pair; a pair in progress has no reasons yet.
        self._compared: dict[tuple[int, int], _Reasons] = {}
        self._in_progress: dict[int, set[int]] = {}  # ids of readers, by the id of the writer
        self._branches: dict[int, _Branches] = {}  # by the id of the union
        self._budget = StepBudget()

    def compare(self, reader: Node, writer: Node, path: _Path) -> _Reasons:
        if reader.kind is writer.kind and isinstance(reader, Primitive):
            return ()
        if reader.shape is not None and reader.shape == writer.shape:
            return ()
        pair = (id(reader), id(writer))
        known = self._compared.get(pair)
        if known is not None:
            return known
        self._budget.spend(PAIR_STEPS)
        self._compared[pair] = ()
        readers = self._in_progress.setdefault(id(writer), set())
        readers.add(id(reader))
        if reader.kind is writer.kind:
            reasons = self._compare_same_kind(reader, writer, path)
        else:
            reasons = self._compare_other_kind(reader, writer, path)
        readers.remove(id(reader))
        self._compared[pair] = reasons
        return reasons

    def _compare_same_kind(self, reader: Node, writer: Node, path: _Path) -> _Reasons:
        if isinstance(reader, Named):
            self._budget.spend(len(reader.aliases))
        if isinstance(reader, Record) and isinstance(writer, Record):
            return _name_differs(reader, writer, path) + self._compare_fields(reader, writer, path)
        if isinstance(reader, Union) and isinstance(writer, Union):
            return self._compare_unions(reader, writer, path)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, (path, "/items"))
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, (path, "/values"))
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            self._budget.spend(len(writer.symbols) + len(reader.symbols))
            return _name_differs(reader, writer, path) + _symbols_differ(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _name_differs(reader, writer, path) + _size_differs(reader, writer, path)
        return ()

    def _compare_other_kind(self, reader: Node, writer: Node, path: _Path) -> _Reasons:
        if isinstance(writer, Union):
            self._budget.spend(len(writer.branches))
            return _all_of(
                self.compare(reader, branch, (path, f"/{index}"))
                for index, branch in enumerate(writer.branches)
            )
        if isinstance(reader, Union):
            candidates = self._may_read(reader, writer)
            if any(not self.compare(branch, writer, ()) for branch in candidates):
                return ()
            return (_Reason(_branch_missing, path, writer),)
        if writer.kind in _PROMOTIONS.get(reader.kind, _NEVER):
            return ()
        return (_Reason(_type_differs, path, reader, writer),)

    def _may_read(self, reader: Union, writer: Node) -> list[Node]:
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        candidates = branches.may_read(writer, self._in_progress.get(id(writer), _NONE))
        self._budget.spend(len(candidates))
        return candidates

    def _compare_unions(self, reader: Union, writer: Union, path: _Path) -> _Reasons:
        return tuple(
            _Reason(_branch_missing, (path, f"/{index}"), branch)
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, ())
        )

    def _compare_fields(self, reader: Record, writer: Record, path: _Path) -> _Reasons:
        self._budget.spend(sum(1 + len(field.aliases) for field in reader.fields))
        return _all_of(
            self._compare_field(field, index, writer, path)
            for index, field in enumerate(reader.fields)
        )

    def _compare_field(self, field: Field, index: int, writer: Record, path: _Path) -> _Reasons:
        written = _written_field(field, index, writer)
        if written is not None:
            return self.compare(field.type, written.type, (path, f"/fields/{index}/type"))
        if field.has_default:
            return ()
        if isinstance(field.type, Enum) and field.type.default is not None:
            # An enum's default is not the field's default; Java reports a type mismatch.
            return self.compare(field.type, writer, (path, f"/fields/{index}/type"))
        return (_Reason(_default_missing, (path, f"/fields/{index}"), field),)


def _all_of(parts: Iterator[_Reasons]) -> _Reasons:
    reasons = [part for part in parts if part]
    return reasons[0] if len(reasons) == 1 else tuple(reasons)


def _written_field(field: Field, index: int, writer: Record) -> Field | None:
    direct = writer.by_name.get(field.name)
    if not field.aliases:
        return direct
    matches = [] if direct is None else [direct]
    matches += [writer.by_name[alias] for alias in field.aliases if alias in writer.by_name]
    if len(matches) > 1:
        described = f"{field.name} type:{field.type.kind.upper()} pos:{index}"
        raise UncheckableError(
            f"Reader record field {described} matches multiple fields in writer record schema "
            + print_start(writer, TEXT_CHARACTERS_MAX)
        )
    return matches[0] if matches else None


def _name_differs(reader: Named, writer: Named, path: _Path) -> _Reasons:
    if reader.name.simple == writer.name.simple or writer.full_name in reader.alias_names:
        return ()
    return (_Reason(_name_mismatch, path, writer),)


def _name_mismatch(path: str, writer: Named) -> Difference:
    where = f"{path}/name"
    description = f"The name of the schema has changed (path '{where}')"
    return Difference("NAME_MISMATCH", where, description, f"expected: {writer.full_name}")


def _symbols_differ(reader: Enum, writer: Enum, path: _Path) -> _Reasons:
    if reader.default is not None or set(writer.symbols) <= set(reader.symbols):
        return ()
    return (_Reason(_symbols_missing, path, reader, writer),)


def _symbols_missing(path: str, reader: Enum, writer: Enum) -> Difference:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    where, listed = f"{path}/symbols", f"[{shortened(', '.join(missing))}]"
    description = (
        f"The %(reader)s schema is missing enum symbols '{listed}' at path '{where}' "
        "in the %(writer)s schema"
    )
    return Difference("MISSING_ENUM_SYMBOLS", where, description, listed)


def _size_differs(reader: Fixed, writer: Fixed, path: _Path) -> _Reasons:
    return () if reader.size == writer.size else (_Reason(_size_mismatch, path, reader, writer),)


def _size_mismatch(path: str, reader: Fixed, writer: Fixed) -> Difference:
    where = f"{path}/size"
    description = (
        f"The size of FIXED type field at path '{where}' in the %(reader)s schema does not match "
        "with the %(writer)s schema"
    )
    additional = f"expected: {writer.size}, found: {reader.size}"
    return Difference("FIXED_SIZE_MISMATCH", where, description, additional)


def _type_differs(path: str, reader: Node, writer: Node) -> Difference:
    where = path or "/"
    description = (
        f"The type (path '{where}') of a field in the %(reader)s schema does not match "
        "with the %(writer)s schema"
    )
    kinds = (reader.kind.upper(), writer.kind.upper())
    additional = f"reader type: {kinds[0]} not compatible with writer type: {kinds[1]}"
    return Difference("TYPE_MISMATCH", where, description, additional)


def _branch_missing(path: str, writer: Node) -> Difference:
    where = path or "/"
    description = (
        f"The %(reader)s schema is missing a type inside a union field at path '{where}' "
        "in the %(writer)s schema"
    )
    additional = f"reader union lacking writer type: {writer.kind.upper()}"
    return Difference("MISSING_UNION_BRANCH", where, description, additional)


def _default_missing(path: str, field: Field) -> Difference:
    description = (
        f"The field '{field.name}' at path '{path}' in the %(reader)s schema has no default value "
        "and is missing in the %(writer)s schema"
    )
    return Difference("READER_FIELD_MISSING_DEFAULT_VALUE", path, description, field.name)
