"""Text to tree, with the rules of Avro's Java library 1.12: what it takes is taken, and no more.

Names are strict for new schemas. A name may be used before its definition, and defined again if
the definition is the same. Whatever else is wrong is an InvalidSchemaError that says where.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.schemas.avro.equality import same_definition
from penstock.schemas.avro.field_cache import Member, Understood, read_record
from penstock.schemas.avro.jsontext import is_too_deep, read_json, write_json
from penstock.schemas.avro.tree import (
    ABSENT,
    NESTING_MAX,
    PRIMITIVES,
    Absent,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    JsonValue,
    Map,
    Name,
    Named,
    Node,
    Pending,
    Primitive,
    Properties,
    Record,
    Union,
)
from penstock.schemas.avro.types import is_valid_default
from penstock.schemas.model import InvalidSchemaError

_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_ENUM_RESERVED: Final = _RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_LENIENT_NAME: Final = re.compile(r"(?:[^\W\d]|_)\w*")
_ORDERS: Final = frozenset(("ascending", "descending", "ignore"))
_FIXED_BYTES_MAX: Final = (1 << 31) - 9  # the longest array a Java reader can make
_SHOWN_CHARACTERS_MAX: Final = 120
_NO_PROPERTIES: Final[Properties] = {}

_Object = dict[str, JsonValue]


class SchemaParser:
    """Reads texts one after the other; each sees the names that those before it defined."""

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._names: dict[str, Named] = {}
        self._spaces: set[str] = set()  # namespaces that were found right
        self._holders: list[Node] = []  # everything with parts, while pending names are unresolved
        self._defaults: list[tuple[Record, str]] = []
        self._has_pending = False
        self._defined: list[Named] = []  # since the present shared field began
        self.uses_names = False  # whether any type was used by its name

    def read(self, text: str) -> Node:
        """The schema in `text`."""
        return self.read_value(read_record(text) or read_json(text))

    def read_value(self, value: JsonValue) -> Node:
        """The schema in a JSON value."""
        self._holders, self._defaults, self._has_pending = [], [], False
        root = self._type(value, None, "", 0)
        if self._has_pending:
            root = self._resolved(root)
            for holder in self._holders:
                self._resolve_parts(holder)
            self._check_defaults_again()
        if isinstance(root, Named):
            return self._names[root.full_name]
        return root

    def _type(self, value: JsonValue, space: str | None, path: str, depth: int) -> Node:
        if isinstance(value, str):
            return PRIMITIVES.get(value) or self._by_name(value, space, path)
        if depth > NESTING_MAX:
            raise InvalidSchemaError(f"types are nested deeper than {NESTING_MAX} levels")
        if isinstance(value, list):
            return self._union(value, space, path, depth)
        if not isinstance(value, dict):
            raise _wrong("a schema is a name, an object or a list of them", value, path)
        kind = value.get("type")
        if not isinstance(kind, str):
            raise _wrong("No type: an object needs the name of its type", value, path)
        return self._object(kind, value, space, path, depth)

    def _object(self, kind: str, value: _Object, space: str | None, path: str, depth: int) -> Node:
        if kind in PRIMITIVES:
            properties = _properties(value, _RESERVED, path)
            if not properties:
                return PRIMITIVES[kind]
            return Primitive(AvroType(kind), properties)
        if kind in ("record", "error"):
            return self._record(value, space, path, depth, is_error=kind == "error")
        match kind:
            case "enum":
                return self._enum(value, space, path)
            case "fixed":
                return self._fixed(value, space, path)
            case "array":
                if "items" not in value:
                    raise _wrong("Array has no items type", value, path)
                items = self._type(value["items"], space, f"{path}/items", depth + 1)
                return self._held(Array(items, _properties(value, _RESERVED, path)))
            case "map":
                if "values" not in value:
                    raise _wrong("Map has no values type", value, path)
                values = self._type(value["values"], space, f"{path}/values", depth + 1)
                return self._held(Map(values, _properties(value, _RESERVED, path)))
        return self._by_name(kind, space, path)

    def _by_name(self, name: str, space: str | None, path: str) -> Node:
        self.uses_names = True
        qualified = f"{space}.{name}" if space is not None and "." not in name else name
        known = self._names.get(qualified) or self._names.get(name)
        if known is not None:
            return known
        self._has_pending = True
        return Pending((qualified, name), path)

    def _held(self, node: Node) -> Node:
        self._holders.append(node)
        return node

    def _union(self, value: list[JsonValue], space: str | None, path: str, depth: int) -> Node:
        branches = [
            self._type(one, space, f"{path}/{index}", depth + 1) for index, one in enumerate(value)
        ]
        _check_branches(branches, path)
        return self._held(Union(branches))

    def _record(
        self, value: _Object, space: str | None, path: str, depth: int, *, is_error: bool
    ) -> Node:
        name = self._name(value, space, path)
        members = value.get("fields")
        if not isinstance(members, list):
            raise _wrong("Record has no fields", value, path)
        fields: list[Field] = []
        seen: set[str] = set()
        for index, member in enumerate(members):
            where = f"{path}/fields/{index}"
            if isinstance(member, Member):
                field = self._shared_field(member, name.space, where, depth)
            else:
                field = self._field(member, name.space, where, depth)
            if field.name in seen:
                raise _wrong(f"Duplicate field {field.name} in record {name.full}", member, where)
            seen.add(field.name)
            fields.append(field)
        record = Record(
            name,
            _text(value, "doc"),
            self._aliases(value, name, path),
            _properties(value, _RESERVED, path),
            fields,
            is_error=is_error,
        )
        self._defaults.append((record, path))
        self._holders.append(record)
        return self._define(record, path)

    def _shared_field(self, member: Member, space: str | None, path: str, depth: int) -> Field:
        known = member.known(space, strict=self._strict)
        if known is not None and self._names.keys().isdisjoint(known.defined):
            self._names.update(known.defined)
            return known.field
        uses_names, self.uses_names = self.uses_names, False
        self._defined = []
        field = self._field(member, space, path, depth)
        defined = {node.full_name: node for node in self._defined}
        if not self.uses_names and all(self._names[name] is defined[name] for name in defined):
            member.understood = Understood(field, defined, space, self._strict)
        self.uses_names |= uses_names
        return field

    def _field(self, member: JsonValue, space: str | None, path: str, depth: int) -> Field:
        if not isinstance(member, dict) or not isinstance(member.get("name"), str):
            raise _wrong("No field name", member, path)
        if "type" not in member:
            raise _wrong("No field type", member, path)
        kind = member["type"]
        node: Node | None = PRIMITIVES.get(kind) if isinstance(kind, str) else None
        if node is None:
            node = self._type(kind, space, f"{path}/type", depth + 1)
        return self._typed_field(member, node, path)

    def _typed_field(self, member: _Object, node: Node, path: str) -> Field:
        name = self._checked(str(member["name"]), path)
        if len(member) == 2:  # name and type: most fields of most schemas
            return Field(name, node, None, ABSENT, "ascending", (), _NO_PROPERTIES)
        default: JsonValue | Absent = ABSENT
        if "default" in member:
            default = self._default(name, node, member["default"], path)
        order = member.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _wrong("order is none of ascending, descending, ignore", order, path)
        aliases = _alias_texts(member, path) if "aliases" in member else ()
        properties = _properties(member, _FIELD_RESERVED, path)
        doc = _text(member, "doc")
        return Field(name, node, doc, default, order.lower(), aliases, properties)

    def _default(self, name: str, node: Node, value: JsonValue, path: str) -> JsonValue:
        if isinstance(value, str) and node.kind in (AvroType.FLOAT, AvroType.DOUBLE):
            value = _double(value, path)
        if isinstance(value, dict | list) and is_too_deep(value):
            raise InvalidSchemaError(f"the default is nested too deep at {path}")
        if self._strict and not is_valid_default(node, value):
            raise _wrong(f"Invalid default for field {name}: not a {_named(node)}", value, path)
        return value

    def _check_defaults_again(self) -> None:
        if not self._strict:
            return
        for record, path in self._defaults:
            for index, field in enumerate(record.fields):
                default = field.default
                if not isinstance(default, Absent) and not is_valid_default(field.type, default):
                    reason = f"Invalid default for field {field.name}: not a {_named(field.type)}"
                    raise _wrong(reason, default, f"{path}/fields/{index}")

    def _enum(self, value: _Object, space: str | None, path: str) -> Node:
        name = self._name(value, space, path)
        members = value.get("symbols")
        if not isinstance(members, list):
            raise _wrong("Enum has no symbols", value, path)
        symbols: dict[str, None] = {}
        for index, symbol in enumerate(members):
            where = f"{path}/symbols/{index}"
            if not isinstance(symbol, str):
                raise _wrong("an enum symbol is text", symbol, where)
            if self._checked(symbol, where) in symbols:
                raise _wrong("Duplicate enum symbol", symbol, where)
            symbols[symbol] = None
        default = _text(value, "default")
        if default is not None and default not in symbols:
            raise _wrong("The enum's default is not one of its symbols", default, path)
        aliases = self._aliases(value, name, path)
        properties = _properties(value, _ENUM_RESERVED, path)
        doc = _text(value, "doc")
        return self._define(Enum(name, doc, aliases, properties, tuple(symbols), default), path)

    def _fixed(self, value: _Object, space: str | None, path: str) -> Node:
        name = self._name(value, space, path)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool):
            raise _wrong("Invalid or no size", size, path)
        if not 0 <= size <= _FIXED_BYTES_MAX:
            raise _wrong(f"a fixed has 0 to {_FIXED_BYTES_MAX} bytes", size, path)
        aliases = self._aliases(value, name, path)
        properties = _properties(value, _RESERVED, path)
        return self._define(Fixed(name, _text(value, "doc"), aliases, properties, size), path)

    def _name(self, value: _Object, space: str | None, path: str) -> Name:
        text = _text(value, "name")
        if text is None:
            raise _wrong("No name in schema", value, path)
        given = _text(value, "namespace")
        name = self._split(text, space if given is None else given, path)
        if name.full in PRIMITIVES:
            raise _wrong("Schemas may not be named after primitives", name.full, path)
        if self._strict and name.space is not None:
            self._check_space(name.space, path)
        return name

    def _check_space(self, space: str, path: str) -> None:
        if space in self._spaces:
            return
        for part in space.split("."):
            self._checked(part, path, "namespace part")
        self._spaces.add(space)

    def _split(self, text: str, space: str | None, path: str) -> Name:
        before, dot, simple = text.rpartition(".")
        return Name(self._checked(simple, path), (before if dot else space) or None)

    def _checked(self, name: str, path: str, what: str = "name") -> str:
        if self._strict:
            is_right = name.isidentifier() and name.isascii()
        else:
            is_right = _LENIENT_NAME.fullmatch(name) is not None
        if not is_right:
            hint = "letters, digits and underscores, not starting with a digit"
            raise _wrong(f"Illegal {what} (allowed: {hint})", name, path)
        return name

    def _aliases(self, value: _Object, name: Name, path: str) -> Sequence[Name]:
        if "aliases" not in value:
            return ()
        aliases: dict[str, Name] = {}
        for text in _alias_texts(value, path):
            alias = self._split(text, name.space, path)
            aliases.setdefault(alias.full, alias)
        return list(aliases.values())

    def _define(self, node: Named, path: str) -> Node:
        self._defined.append(node)
        known = self._names.setdefault(node.full_name, node)
        if known is not node and not same_definition(known, node):
            raise InvalidSchemaError(f"Can't redefine: {node.full_name} at {path or '/'}")
        return node

    def _resolved(self, node: Node) -> Node:
        if not isinstance(node, Pending):
            return node
        for name in node.candidates:
            known = self._names.get(name)
            if known is not None:
                return known
        name = node.candidates[0]
        remedy = "define it, or add a reference to the schema that does"
        raise InvalidSchemaError(f'Undefined schema: "{name}" at {node.path or "/"}: {remedy}')

    def _resolve_parts(self, holder: Node) -> None:
        if isinstance(holder, Record):
            for field in holder.fields:
                field.type = self._resolved(field.type)
        elif isinstance(holder, Array):
            holder.items = self._resolved(holder.items)
        elif isinstance(holder, Map):
            holder.values = self._resolved(holder.values)
        elif isinstance(holder, Union):
            holder.branches = [self._resolved(branch) for branch in holder.branches]
            _check_branches(holder.branches, "")


def _check_branches(branches: Iterable[Node], path: str) -> None:
    seen: set[str] = set()
    for branch in branches:
        if isinstance(branch, Union):
            raise InvalidSchemaError(f"Nested union: a union cannot hold a union at {path or '/'}")
        if isinstance(branch, Pending):
            continue
        if branch.full_name in seen:
            raise InvalidSchemaError(f"Duplicate in union: {branch.full_name} at {path or '/'}")
        seen.add(branch.full_name)


def _text(value: _Object, key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None  # other types are passed over, as Java does


def _alias_texts(value: _Object, path: str) -> list[str]:
    aliases = value["aliases"]
    if not isinstance(aliases, list):
        raise _wrong("aliases not an array", aliases, path)
    texts: dict[str, None] = {}
    for alias in aliases:
        if not isinstance(alias, str):
            raise _wrong("alias not a string", alias, path)
        texts[alias] = None
    return list(texts)


def _properties(value: _Object, reserved: frozenset[str], path: str) -> Properties:
    if value.keys() <= reserved:
        return _NO_PROPERTIES
    properties = {key: one for key, one in value.items() if key not in reserved}
    for key, one in properties.items():
        if isinstance(one, dict | list) and is_too_deep(one):
            raise InvalidSchemaError(f"the property {key} is nested too deep at {path or '/'}")
    return properties


def _double(text: str, path: str) -> float:
    stripped = text.strip()
    if stripped in ("NaN", "Infinity", "+Infinity", "-Infinity"):
        return float(stripped)
    number = stripped.rstrip("fFdD")
    if re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", number) is None:
        raise _wrong("the default of a float or double is not a number", text, path)
    return float(number)


def _named(node: Node) -> str:
    if isinstance(node, Union):
        return "union of " + ", ".join(branch.full_name for branch in node.branches)
    return node.full_name


def _wrong(reason: str, value: JsonValue, path: str) -> InvalidSchemaError:
    try:
        shown = write_json(value)
    except RecursionError:
        shown = "…"
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = shown[:_SHOWN_CHARACTERS_MAX] + "…"
    return InvalidSchemaError(f"{reason}: {shown} at {path or '/'}")
