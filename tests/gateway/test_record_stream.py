import json
from typing import Final

import pytest

from penstock.gateway.rest_v3.record_stream import ObjectScan

OBJECTS: Final = [
    {},
    {"value": {"data": [{"a": 1}, {}]}},
    {"value": '} \\ " {', "key": "\\"},
    {'\\"': "\n\u20ac"},
]


@pytest.mark.parametrize("document", OBJECTS)
def test_the_end_of_an_object_is_found_whatever_parts_it_arrives_in(document: object) -> None:
    text = json.dumps(document)
    for cut in range(1, len(text)):
        scan = ObjectScan()
        assert scan.find_end(text[:cut]) is None
        assert scan.find_end(text + ' {"next') == len(text)


def test_every_character_is_scanned_once() -> None:
    scan = ObjectScan()
    assert scan.find_end('{"value": "' + "}" * 10) is None
    # Had it begun again, it would find that the object ends in what was a string before.
    assert scan.find_end("{" + " " * 20 + '"}') == 23


def test_what_is_not_an_object_has_no_end() -> None:
    assert ObjectScan().find_end("[1, 2]") is None
    assert ObjectScan().find_end("") is None
