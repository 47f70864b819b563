"""The hash of a string is Java's."""

from penstock.protocol.java_hash import java_hash


def test_a_string_has_the_hash_that_java_gives_it() -> None:
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("polygenelubricants") == 0  # -2**31 in Java, made non-negative


def test_a_character_outside_the_basic_plane_counts_as_two_units() -> None:
    assert java_hash("\U0001f600") == (31 * 0xD83D + 0xDE00) & 0x7FFFFFFF
