"""Java's hash of a string: Kafka chooses the partition of a group or transactional id by it.

Pure. Limits on the length of names are for callers to check.
"""


def java_hash(text: str) -> int:
    """`String.hashCode` of the text, made non-negative as Kafka does."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        unit = units[position] << 8 | units[position + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
