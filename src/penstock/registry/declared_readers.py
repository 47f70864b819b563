"""The readers that a subject has, as the store keeps them.

Each is the latest version of a subject in the context `.readers` (`schemas.readers` says how). A
registry that nobody declared a reader to has no such context, and nothing here costs it anything.
"""

from datetime import UTC, date, datetime

from penstock.model import Millis
from penstock.registry.examine import KeptReader, Text
from penstock.registry.store.state import Store
from penstock.registry.subject_names import Subject
from penstock.schemas.readers import READERS_CONTEXT, reader_name, readers_prefix


def readers_of(store: Store, subject: Subject) -> list[KeptReader]:
    """All that are declared, the expired included, by name."""
    inside = store.contexts.get(READERS_CONTEXT)
    if inside is None:
        return []
    prefix = readers_prefix(subject)
    kept = {name for users in inside.ids.values() for name, _ in users if name.startswith(prefix)}
    found = []
    for one in sorted(kept):
        version = store.latest(one)
        if version is not None:
            metadata = version.contents.metadata
            text = Text(version.contents.source, store.imports_of(version))
            properties = {} if metadata is None else metadata.properties
            found.append(KeptReader(reader_name(one), text, properties))
    return found


def day_of(now: Millis) -> date:
    """Leases end with a day by UTC, as registries and their clients may be anywhere."""
    return datetime.fromtimestamp(now / 1000, UTC).date()
