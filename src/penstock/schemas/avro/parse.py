"""Text to tree, with the rules of Avro's Java library 1.12: accepts exactly what it accepts.

Names are checked strictly in new schemas. A name may be used before its definition, and defined
again if the definition is the same. Errors are InvalidSchemaError and give the path.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.schemas.avro.equality import same_definition
from penstock.schemas.avro.field_cache import FieldText, ParsedField, read_record
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
_FIXED_BYTES_MAX: Final = (1 << 31) - 9  # the longest array that a Java reader can allocate
_SHOWN_CHARACTERS_MAX: Final = 120
_NO_PROPERTIES: Final[Properties] = {}

_Object = dict[str, JsonValue]


class SchemaParser:
    """Parses texts one after the other; each can use the names that those before it defined."""

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._names: dict[str, Named] = {}
        self._namespaces: set[str] = set()  # that were checked
        self._containers: list[Node] = []  # all nodes with parts, to resolve pending names
        self._records: list[tuple[Record, str]] = []  # with their paths
        self._has_pending = False
        self._defined: list[Named] = []  # since the current cached field began
        self.uses_names: bool = False  # whether any type was used by its name

    def parse(self, text: str) -> Node:
        """The schema in `text`."""
        return self.parse_value(read_record(text) or read_json(text))

    def parse_value(self, value: JsonValue) -> Node:
        """The schema in a JSON value."""
        self._containers, self._records, self._has_pending = [], [], False
        root = self._type(value, None, "", 0)
        if self._has_pending:
            root = self._resolved(root)
            for container in self._containers:
                self._resolve_parts(container)
            self._check_defaults()
        if isinstance(root, Named):
            return self._names[root.full_name]
        return root

    def _type(self, value: JsonValue, namespace: str | None, path: str, depth: int) -> Node:
        if isinstance(value, str):
            return PRIMITIVES.get(value) or self._by_name(value, namespace, path)
        if depth > NESTING_MAX:
            raise InvalidSchemaError(f"types are nested deeper than {NESTING_MAX} levels")
        if isinstance(value, list):
            return self._union(value, namespace, path, depth)
        if not isinstance(value, dict):
            raise _invalid("a schema is a name, an object or a list of them", value, path)
        kind = value.get("type")
        if not isinstance(kind, str):
            raise _invalid("No type: an object needs the name of its type", value, path)
        return self._object(kind, value, namespace, path, depth)

    def _object(
        self, kind: str, value: _Object, namespace: str | None, path: str, depth: int
    ) -> Node:
        if kind in PRIMITIVES:
            properties = _properties(value, _RESERVED, path)
            if not properties:
                return PRIMITIVES[kind]
            return Primitive(AvroType(kind), properties)
        if kind in ("record", "error"):
            return self._record(value, namespace, path, depth, is_error=kind == "error")
        match kind:
            case "enum":
                return self._enum(value, namespace, path)
            case "fixed":
                return self._fixed(value, namespace, path)
            case "array":
                if "items" not in value:
                    raise _invalid("Array has no items type", value, path)
                items = self._type(value["items"], namespace, f"{path}/items", depth + 1)
                return self._container(Array(items, _properties(value, _RESERVED, path)))
            case "map":
                if "values" not in value:
                    raise _invalid("Map has no values type", value, path)
                values = self._type(value["values"], namespace, f"{path}/values", depth + 1)
                return self._container(Map(values, _properties(value, _RESERVED, path)))
        return self._by_name(kind, namespace, path)

    def _by_name(self, name: str, namespace: str | None, path: str) -> Node:
        self.uses_names = True
        qualified = f"{namespace}.{name}" if namespace is not None and "." not in name else name
        known = self._names.get(qualified) or self._names.get(name)
        if known is not None:
            return known
        self._has_pending = True
        return Pending((qualified, name), path)

    def _container(self, node: Node) -> Node:
        self._containers.append(node)
        return node

    def _union(self, value: list[JsonValue], namespace: str | None, path: str, depth: int) -> Node:
        branches = [
            self._type(branch, namespace, f"{path}/{index}", depth + 1)
            for index, branch in enumerate(value)
        ]
        _check_branches(branches, path)
        return self._container(Union(branches))

    def _record(
        self, value: _Object, namespace: str | None, path: str, depth: int, *, is_error: bool
    ) -> Node:
        name = self._name(value, namespace, path)
        members = value.get("fields")
        if not isinstance(members, list):
            raise _invalid("Record has no fields", value, path)
        fields: list[Field] = []
        seen: set[str] = set()
        for index, member in enumerate(members):
            where = f"{path}/fields/{index}"
            if isinstance(member, FieldText):
                field = self._cached_field(member, name.namespace, where, depth)
            else:
                field = self._field(member, name.namespace, where, depth)
            if field.name in seen:
                raise _invalid(f"Duplicate field {field.name} in record {name.full}", member, where)
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
        self._records.append((record, path))
        self._containers.append(record)
        return self._define(record, path)

    def _cached_field(
        self, member: FieldText, namespace: str | None, path: str, depth: int
    ) -> Field:
        known = member.parsed_in(namespace, strict=self._strict)
        if known is not None and self._names.keys().isdisjoint(known.defined):
            self._names.update(known.defined)
            return known.field
        uses_names, self.uses_names = self.uses_names, False
        self._defined = []
        field = self._field(member, namespace, path, depth)
        defined = {node.full_name: node for node in self._defined}
        if not self.uses_names and all(self._names[name] is defined[name] for name in defined):
            member.parsed = ParsedField(field, defined, namespace, self._strict)
        self.uses_names |= uses_names
        return field

    def _field(self, member: JsonValue, namespace: str | None, path: str, depth: int) -> Field:
        if not isinstance(member, dict) or not isinstance(member.get("name"), str):
            raise _invalid("No field name", member, path)
        if "type" not in member:
            raise _invalid("No field type", member, path)
        kind = member["type"]
        node: Node | None = PRIMITIVES.get(kind) if isinstance(kind, str) else None
        if node is None:
            node = self._type(kind, namespace, f"{path}/type", depth + 1)
        return self._typed_field(member, node, path)

    def _typed_field(self, member: _Object, node: Node, path: str) -> Field:
        name = self._checked_name(str(member["name"]), path)
        if len(member) == 2:  # name and type: most fields of most schemas
            return Field(name, node, None, ABSENT, "ascending", (), _NO_PROPERTIES)
        default: JsonValue | Absent = ABSENT
        if "default" in member:
            default = self._default(name, node, member["default"], path)
        order = member.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise _invalid("order is none of ascending, descending, ignore", order, path)
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
            raise _invalid(
                f"Invalid default for field {name}: not a {_type_name(node)}", value, path
            )
        return value

    def _check_defaults(self) -> None:
        if not self._strict:
            return
        for record, path in self._records:
            for index, field in enumerate(record.fields):
                default = field.default
                if not isinstance(default, Absent) and not is_valid_default(field.type, default):
                    reason = (
                        f"Invalid default for field {field.name}: not a {_type_name(field.type)}"
                    )
                    raise _invalid(reason, default, f"{path}/fields/{index}")

    def _enum(self, value: _Object, namespace: str | None, path: str) -> Node:
        name = self._name(value, namespace, path)
        members = value.get("symbols")
        if not isinstance(members, list):
            raise _invalid("Enum has no symbols", value, path)
        symbols: dict[str, None] = {}
        for index, symbol in enumerate(members):
            where = f"{path}/symbols/{index}"
            if not isinstance(symbol, str):
                raise _invalid("an enum symbol is text", symbol, where)
            if self._checked_name(symbol, where) in symbols:
                raise _invalid("Duplicate enum symbol", symbol, where)
            symbols[symbol] = None
        default = _text(value, "default")
        if default is not None and default not in symbols:
            raise _invalid("The enum's default is not one of its symbols", default, path)
        aliases = self._aliases(value, name, path)
        properties = _properties(value, _ENUM_RESERVED, path)
        doc = _text(value, "doc")
        return self._define(Enum(name, doc, aliases, properties, tuple(symbols), default), path)

    def _fixed(self, value: _Object, namespace: str | None, path: str) -> Node:
        name = self._name(value, namespace, path)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool):
            raise _invalid("Invalid or no size", size, path)
        if not 0 <= size <= _FIXED_BYTES_MAX:
            raise _invalid(f"a fixed has 0 to {_FIXED_BYTES_MAX} bytes", size, path)
        aliases = self._aliases(value, name, path)
        properties = _properties(value, _RESERVED, path)
        return self._define(Fixed(name, _text(value, "doc"), aliases, properties, size), path)

    def _name(self, value: _Object, namespace: str | None, path: str) -> Name:
        text = _text(value, "name")
        if text is None:
            raise _invalid("No name in schema", value, path)
        given = _text(value, "namespace")
        name = self._split(text, namespace if given is None else given, path)
        if name.full in PRIMITIVES:
            raise _invalid("Schemas may not be named after primitives", name.full, path)
        if self._strict and name.namespace is not None:
            self._check_namespace(name.namespace, path)
        return name

    def _check_namespace(self, namespace: str, path: str) -> None:
        if namespace in self._namespaces:
            return
        for word in namespace.split("."):
            self._checked_name(word, path, "namespace part")
        self._namespaces.add(namespace)

    def _split(self, text: str, namespace: str | None, path: str) -> Name:
        before, dot, simple = text.rpartition(".")
        return Name(self._checked_name(simple, path), (before if dot else namespace) or None)

    def _checked_name(self, name: str, path: str, what: str = "name") -> str:
        if self._strict:
            is_valid = name.isidentifier() and name.isascii()
        else:
            is_valid = _LENIENT_NAME.fullmatch(name) is not None
        if not is_valid:
            hint = "letters, digits and underscores, not starting with a digit"
            raise _invalid(f"Illegal {what} (allowed: {hint})", name, path)
        return name

    def _aliases(self, value: _Object, name: Name, path: str) -> Sequence[Name]:
        if "aliases" not in value:
            return ()
        aliases: dict[str, Name] = {}
        for text in _alias_texts(value, path):
            alias = self._split(text, name.namespace, path)
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
        remedy = "define it, or add a reference to the schema that defines it"
        raise InvalidSchemaError(f'Undefined schema: "{name}" at {node.path or "/"}: {remedy}')

    def _resolve_parts(self, container: Node) -> None:
        if isinstance(container, Record):
            for field in container.fields:
                field.type = self._resolved(field.type)
        elif isinstance(container, Array):
            container.items = self._resolved(container.items)
        elif isinstance(container, Map):
            container.values = self._resolved(container.values)
        elif isinstance(container, Union):
            container.branches = [self._resolved(branch) for branch in container.branches]
            _check_branches(container.branches, "")


def _check_branches(branches: Iterable[Node], path: str) -> None:
    seen: set[str] = set()
    for branch in branches:
        if isinstance(branch, Union):
            raise InvalidSchemaError(
                f"Nested union: a union cannot contain a union at {path or '/'}"
            )
        if isinstance(branch, Pending):
            continue
        if branch.full_name in seen:
            raise InvalidSchemaError(f"Duplicate in union: {branch.full_name} at {path or '/'}")
        seen.add(branch.full_name)


def _text(value: _Object, key: str) -> str | None:
    text = value.get(key)
    return text if isinstance(text, str) else None  # other types are ignored, as in Java


def _alias_texts(value: _Object, path: str) -> list[str]:
    aliases = value["aliases"]
    if not isinstance(aliases, list):
        raise _invalid("aliases not an array", aliases, path)
    texts: dict[str, None] = {}
    for alias in aliases:
        if not isinstance(alias, str):
            raise _invalid("alias not a string", alias, path)
        texts[alias] = None
    return list(texts)


def _properties(value: _Object, reserved: frozenset[str], path: str) -> Properties:
    if value.keys() <= reserved:
        return _NO_PROPERTIES
    properties = {key: member for key, member in value.items() if key not in reserved}
    for key, member in properties.items():
        if isinstance(member, dict | list) and is_too_deep(member):
            raise InvalidSchemaError(f"the property {key} is nested too deep at {path or '/'}")
    return properties


def _double(text: str, path: str) -> float:
    stripped = text.strip()
    if stripped in ("NaN", "Infinity", "+Infinity", "-Infinity"):
        return float(stripped)
    number = stripped.rstrip("fFdD")
    if re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", number) is None:
        raise _invalid("the default of a float or double is not a number", text, path)
    return float(number)


def _type_name(node: Node) -> str:
    if isinstance(node, Union):
        return "union of " + ", ".join(branch.full_name for branch in node.branches)
    return node.full_name


def _invalid(reason: str, value: JsonValue, path: str) -> InvalidSchemaError:
    try:
        shown = write_json(value)
    except RecursionError:
        shown = "…"
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = shown[:_SHOWN_CHARACTERS_MAX] + "…"
    return InvalidSchemaError(f"{reason}: {shown} at {path or '/'}")
