"""Which part of what was written a part of the reader's schema is read from, by Avro's rules."""

from typing import Final

from penstock.schemas.avro.tree import AvroType, Field, Named, Node, Record, Union

_PROMOTED: Final = {
    AvroType.INT: (AvroType.LONG, AvroType.FLOAT, AvroType.DOUBLE),
    AvroType.LONG: (AvroType.FLOAT, AvroType.DOUBLE),
    AvroType.FLOAT: (AvroType.DOUBLE,),
    AvroType.STRING: (AvroType.BYTES,),
    AvroType.BYTES: (AvroType.STRING,),
}


def written_fields(writer: Record, reader: Record) -> dict[str, Field]:
    """Which of the writer's fields each of the reader's is read from; a written one serves once."""
    written = {
        field.name: writer.by_name[field.name]
        for field in reader.fields
        if field.name in writer.by_name
    }
    taken = set(written)
    for field in reader.fields:
        if field.name in written:
            continue
        for alias in field.aliases:
            if alias in writer.by_name and alias not in taken:
                written[field.name] = writer.by_name[alias]
                taken.add(alias)
                break
    return written


def same_name(writer: Named, reader: Named) -> bool:
    """Whether a named type may be read as the other, as the compatibility check has it."""
    return reader.name.simple == writer.name.simple or writer.full_name in reader.alias_names


def matching_branch(writer: Node, reader: Union) -> Node | None:
    """The branch that reads what `writer` wrote: of the same type if there is one, else promoted.

    Avro's Java library looks for the same type first; a double before it in the union does not
    take an int away from an int.
    """
    alike = [branch for branch in reader.branches if branch.kind is writer.kind]
    if isinstance(writer, Named):
        named = [branch for branch in alike if isinstance(branch, Named)]
        for branch in named:
            if branch.full_name == writer.full_name:
                return branch
        return next((branch for branch in named if same_name(writer, branch)), None)
    if alike:
        return alike[0]
    promoted = _PROMOTED.get(writer.kind, ())
    return next((branch for branch in reader.branches if branch.kind in promoted), None)
