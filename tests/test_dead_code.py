"""Everything in the repository is used, by vulture's rules and its table in pyproject.toml."""

import tomllib
from pathlib import Path
from typing import Final

from vulture import Vulture
from vulture.core import Item

ROOT: Final = Path(__file__).parent.parent
# Kafka's fields and codes are tables: an entry may be there only because Kafka has it.
TABLES: Final = (ROOT / "src/penstock/protocol", ROOT / "src/penstock/broker/permissions.py")
OF_SIMULATIONS: Final = {"is_single_broker"}  # an option that is printed with its seed


def is_in_table(item: Item) -> bool:
    return item.typ == "variable" and any(item.filename.is_relative_to(table) for table in TABLES)


def test_everything_is_used() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["vulture"]
    finder = Vulture(
        ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"]
    )
    finder.scavenge([ROOT / path for path in settings["paths"]])
    unused = [
        item.get_report()
        for item in finder.get_unused_code(min_confidence=settings["min_confidence"])
        if not is_in_table(item) and item.name not in OF_SIMULATIONS
    ]
    assert unused == []
