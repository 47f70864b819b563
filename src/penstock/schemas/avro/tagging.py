"""Tags in an Avro schema: a property of the record or field that the path names.

A record is named with its namespace or without; the first that matches from the outside in is it.
"""

from collections import deque
from typing import Any

from penstock.schemas.avro.jsontext import read_json, write_json
from penstock.schemas.tags import Entity, Tagging


def tagged(text: str, tagging: Tagging) -> str:
    """A schema's canonical text with its tags changed."""
    root: Any = read_json(text)
    for entity in tagging.entities:
        tagging.change_member(entity, _find(root, entity))
    return write_json(root)


def _find(root: Any, entity: Entity) -> dict[str, Any]:
    words = entity.words
    field = None if entity.is_record else words.pop()
    if not words:
        raise entity.missing()
    *space, name = words
    waiting = deque([(root, "")])
    while waiting:
        node, around = waiting.popleft()
        if isinstance(node, list):
            waiting += [(one, around) for one in node]
        if not isinstance(node, dict):
            continue
        here = node.get("namespace", around)
        if node.get("type") != "record":
            inner = (node.get(key) for key in ("type", "items", "values"))
            waiting += [(one, here) for one in inner if isinstance(one, dict | list)]
        elif node["name"] != name or (space and ".".join(space) != here):
            waiting += [(one, here) for one in node["fields"]]
        elif field is None:
            return node
        else:
            found = next((one for one in node["fields"] if one["name"] == field), None)
            if found is None:
                break
            place: dict[str, Any] = found
            return place
    raise entity.missing()
