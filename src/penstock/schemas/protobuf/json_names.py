"""The names fields have in JSON when nobody says otherwise."""

from typing import Any


def without_default_json_names(file: Any) -> Any:
    """A copy without the JSON names that everybody derives alike; the peer sends none either."""
    copy = type(file)()
    copy.CopyFrom(file)
    waiting = list(copy.message_type)
    _clear_json_names(copy.extension)
    while waiting:
        message = waiting.pop()
        _clear_json_names(message.field)
        _clear_json_names(message.extension)
        waiting += message.nested_type
    return copy


def _clear_json_names(fields: Any) -> None:
    for field in fields:
        if field.json_name == default_json_name(field.name):
            field.ClearField("json_name")


def default_json_name(name: str) -> str:
    """lowerCamelCase as the compiler derives it."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
