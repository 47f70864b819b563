"""Tags on records and fields, put into the text of a schema or taken out of it.

A place is named by a path of words with dots between; what the words are is its language's own.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.schemas.model import InvalidSchema

TAGS: Final = "confluent:tags"


class Entity(NamedTuple):
    """A record or a field."""

    is_record: bool
    path: str

    @property
    def words(self) -> list[str]:
        """The steps of the path; a dot in front says nothing."""
        return self.path.removeprefix(".").split(".")

    def missing(self) -> InvalidSchema:
        """What is said when it is not there."""
        return InvalidSchema(f"No matching path '{self.path}' found in the schema")


class Tagging(NamedTuple):
    """What is to be added and removed."""

    added: Mapping[Entity, tuple[str, ...]]
    removed: Mapping[Entity, tuple[str, ...]]

    @property
    def entities(self) -> list[Entity]:
        """All places that are spoken of, in order."""
        return list(dict.fromkeys([*self.added, *self.removed]))

    def changed(self, entity: Entity, tags: Iterable[str]) -> list[str]:
        """The tags that a place has afterwards."""
        gone = self.removed.get(entity, ())
        kept = dict.fromkeys([*tags, *self.added.get(entity, ())])
        return [tag for tag in kept if tag not in gone]

    def change_member(self, entity: Entity, place: dict[str, object]) -> None:
        """Do it in a JSON object, which has its tags in a member."""
        known = place.get(TAGS)
        tags = self.changed(entity, map(str, known) if isinstance(known, list) else ())
        if tags:
            place[TAGS] = tags
        else:
            place.pop(TAGS, None)
