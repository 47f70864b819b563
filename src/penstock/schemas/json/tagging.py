"""Tags in a JSON Schema: a member of the object or property that the path names.

`object.address.object.street`: in turn what a schema is and which part of it is meant. Lists
(`anyof.0`, `allof.1`, `oneof.0`) are counted in the order in which they are written.
"""

from typing import Any

from penstock.schemas.json.jsontext import JsonValue, read_json, write_json
from penstock.schemas.tags import Tagging

_LISTS = {"anyof": "anyOf", "allof": "allOf", "oneof": "oneOf"}


def tagged(text: str, tagging: Tagging) -> str:
    """A schema's canonical text with its tags changed."""
    root: Any = read_json(text)
    for entity in tagging.entities:
        place = _find(root, entity.words, is_record=entity.is_record)
        if not isinstance(place, dict):
            raise entity.missing()
        tagging.change_member(entity, place)
    return write_json(root)


def _find(node: JsonValue, words: list[str], *, is_record: bool) -> Any:
    while isinstance(node, dict) and words:
        kind = words.pop(0)
        if kind == "object":
            if is_record and not words:
                return node
            node = _part(node, words)
            if not words:
                return node
        elif kind == "array":
            node = node.get("items")
        elif kind == "not":
            node = node.get("not")
        elif kind in _LISTS:
            node = _listed(node, _LISTS[kind], words)
        else:
            return None
    return None


def _part(node: dict[str, JsonValue], words: list[str]) -> JsonValue:
    """A property or definition; its name may have dots in it."""
    holder = words.pop(0) if words[:1] in (["definitions"], ["$defs"]) else "properties"
    parts = node.get(holder)
    name = ""
    while isinstance(parts, dict) and words:
        name += words.pop(0)
        if name in parts:
            return parts[name]
        name += "."
    return None


def _listed(node: dict[str, JsonValue], keyword: str, words: list[str]) -> JsonValue:
    """One of several. What only counts as several, `type: [a, b]` or if and then, is itself."""
    index = words.pop(0) if words else ""
    several = node.get(keyword)
    if isinstance(several, list):
        is_there = index.isdecimal() and int(index[:9]) < len(several)
        return several[int(index)] if is_there else None
    if words[:1] == ["conditional"]:
        words.pop(0)
        return node.get(words.pop(0)) if words else None
    return node if keyword != "oneOf" else None
