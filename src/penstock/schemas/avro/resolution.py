"""Why one schema cannot read what another wrote: Avro's schema resolution, as a list of reasons.

Verdicts, kinds, paths and their order are those of the Java library's compatibility checker,
quirks included: records match by their short names, a pair that is being compared already counts
as compatible, and a pair reported once is reported from the same place again. One exception: when
a union is searched for a branch that reads a type, branches of another name or kind are not
compared at all.

Each pair is compared once, and refers to the findings of its parts instead of copying them. Texts
are written at the end, for the first findings only. So the cost follows the number of pairs, which
`Budget` limits, and not the number of ways that lead to a pair.
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
from penstock.schemas.model import TEXT_CHARACTERS_MAX, Difference, StepBudget, bounded, shortened

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

# Steps from a place up to the root; long paths share their beginnings.
_Path: TypeAlias = "tuple[()] | tuple[_Path, str]"


class _Reason:
    """One finding: how to write its difference."""

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


# Empty: compatible. The findings of a part are referred to, so this is a graph.
_Findings: TypeAlias = "tuple[_Reason | _Findings, ...]"


class UncheckableError(Exception):
    """The two cannot be compared at all; the message is the peer's."""


def differences(reader: Node, writer: Node) -> tuple[Difference, ...]:
    """The first reasons why `reader` cannot read what `writer` wrote; empty if it can."""
    findings = _Resolution().compare(reader, writer, ())
    return bounded(one.written() for one in _reasons(findings))


def _reasons(findings: _Findings) -> Iterator[_Reason]:
    waiting: list[Any] = [findings]
    while waiting:
        one = waiting.pop()
        if isinstance(one, _Reason):
            yield one
        else:
            waiting += reversed(one)


def _joined(path: _Path) -> str:
    steps: list[str] = []
    while path:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps))


class _Branches:
    """The branches of a union, by the names they can read."""

    def __init__(self, union: Union) -> None:
        self._branches = union.branches
        self._positions = {id(one): position for position, one in enumerate(union.branches)}
        self._unnamed: list[int] = []
        self._named: dict[tuple[AvroType, str], list[int]] = {}
        for position, branch in enumerate(union.branches):
            if isinstance(branch, Named):
                # Aliases are full names; the colon keeps them apart from short names.
                aliases = [f":{alias}" for alias in branch.alias_names]
                for name in {branch.name.simple, *aliases}:
                    self._named.setdefault((branch.kind, name), []).append(position)
            else:
                self._unnamed.append(position)

    def may_read(self, writer: Node, in_progress: Set[int]) -> list[Node]:
        """Branches that are worth a comparison with `writer`, or being compared with it already."""
        found = {self._positions[one] for one in in_progress if one in self._positions}
        if isinstance(writer, Named):
            found.update(self._named.get((writer.kind, writer.name.simple), ()))
            found.update(self._named.get((writer.kind, f":{writer.full_name}"), ()))
        else:
            found.update(self._unnamed)
        return [self._branches[position] for position in sorted(found)]


class _Resolution:
    def __init__(self) -> None:
        # By identities of the pair; a pair in progress is there with no findings.
        self._compared: dict[tuple[int, int], _Findings] = {}
        self._in_progress: dict[int, set[int]] = {}  # identities of readers, by that of the writer
        self._branches: dict[int, _Branches] = {}  # by identity of the union
        self._budget = StepBudget()

    def compare(self, reader: Node, writer: Node, path: _Path) -> _Findings:
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
            found = self._compare_alike(reader, writer, path)
        else:
            found = self._compare_unlike(reader, writer, path)
        readers.remove(id(reader))
        self._compared[pair] = found
        return found

    def _compare_alike(self, reader: Node, writer: Node, path: _Path) -> _Findings:
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
            return _name_differs(reader, writer, path) + _symbols_lack(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _name_differs(reader, writer, path) + _size_differs(reader, writer, path)
        return ()

    def _compare_unlike(self, reader: Node, writer: Node, path: _Path) -> _Findings:
        if isinstance(writer, Union):
            self._budget.spend(len(writer.branches))
            return _all_of(
                self.compare(reader, branch, (path, f"/{index}"))
                for index, branch in enumerate(writer.branches)
            )
        if isinstance(reader, Union):
            if any(not self.compare(one, writer, ()) for one in self._may_read(reader, writer)):
                return ()
            return (_Reason(_branch_missing, path, writer),)
        if writer.kind in _PROMOTIONS.get(reader.kind, _NEVER):
            return ()
        return (_Reason(_type_differs, path, reader, writer),)

    def _may_read(self, reader: Union, writer: Node) -> list[Node]:
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        found = branches.may_read(writer, self._in_progress.get(id(writer), _NONE))
        self._budget.spend(len(found))
        return found

    def _compare_unions(self, reader: Union, writer: Union, path: _Path) -> _Findings:
        return tuple(
            _Reason(_branch_missing, (path, f"/{index}"), branch)
            for index, branch in enumerate(writer.branches)
            if self.compare(reader, branch, ())
        )

    def _compare_fields(self, reader: Record, writer: Record, path: _Path) -> _Findings:
        self._budget.spend(sum(1 + len(field.aliases) for field in reader.fields))
        return _all_of(
            self._compare_field(field, index, writer, path)
            for index, field in enumerate(reader.fields)
        )

    def _compare_field(self, field: Field, index: int, writer: Record, path: _Path) -> _Findings:
        written = _written_field(field, index, writer)
        if written is not None:
            return self.compare(field.type, written.type, (path, f"/fields/{index}/type"))
        if field.has_default:
            return ()
        if isinstance(field.type, Enum) and field.type.default is not None:
            # An enum's own default is no default of the field; the peer words it as a mismatch.
            return self.compare(field.type, writer, (path, f"/fields/{index}/type"))
        return (_Reason(_default_missing, (path, f"/fields/{index}"), field),)


def _all_of(parts: Iterator[_Findings]) -> _Findings:
    found = [part for part in parts if part]
    return found[0] if len(found) == 1 else tuple(found)


def _written_field(field: Field, index: int, writer: Record) -> Field | None:
    direct = writer.by_name.get(field.name)
    if not field.aliases:
        return direct
    found = [] if direct is None else [direct]
    found += [writer.by_name[alias] for alias in field.aliases if alias in writer.by_name]
    if len(found) > 1:
        shown = f"{field.name} type:{field.type.kind.upper()} pos:{index}"
        raise UncheckableError(
            f"Reader record field {shown} matches multiple fields in writer record schema "
            + print_start(writer, TEXT_CHARACTERS_MAX)
        )
    return found[0] if found else None


def _name_differs(reader: Named, writer: Named, path: _Path) -> _Findings:
    if reader.name.simple == writer.name.simple or writer.full_name in reader.alias_names:
        return ()
    return (_Reason(_name_mismatch, path, writer),)


def _name_mismatch(path: str, writer: Named) -> Difference:
    where = f"{path}/name"
    description = f"The name of the schema has changed (path '{where}')"
    return Difference("NAME_MISMATCH", where, description, f"expected: {writer.full_name}")


def _symbols_lack(reader: Enum, writer: Enum, path: _Path) -> _Findings:
    if reader.default is not None or set(writer.symbols) <= set(reader.symbols):
        return ()
    return (_Reason(_symbols_missing, path, reader, writer),)


def _symbols_missing(path: str, reader: Enum, writer: Enum) -> Difference:
    lacking = sorted(set(writer.symbols) - set(reader.symbols))
    where, listed = f"{path}/symbols", f"[{shortened(', '.join(lacking))}]"
    description = (
        f"The %(reader)s schema is missing enum symbols '{listed}' at path '{where}' "
        "in the %(writer)s schema"
    )
    return Difference("MISSING_ENUM_SYMBOLS", where, description, listed)


def _size_differs(reader: Fixed, writer: Fixed, path: _Path) -> _Findings:
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
