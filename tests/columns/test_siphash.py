"""Keys are hashed as the authors of SipHash publish it."""

import numpy as np
import pytest

from penstock.columns.compiled import ConstBytes, UInt64s, kernel, read_only
from penstock.columns.siphash import hash_key


@kernel
def hash_into(source: ConstBytes, size: int, seed: UInt64s, words: UInt64s) -> None:
    """The function is compiled into kernels: this one makes it callable."""
    words[0], words[1] = hash_key(source, 0, size, seed)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_keys_are_hashed_with_siphash_2_4_of_128_bits(size: int, expected: str) -> None:
    seed = np.frombuffer(bytes(range(16)), dtype="<u8").copy()
    words = np.zeros(2, dtype="<u8")
    hash_into(read_only(bytes(range(16))), size, seed, words)
    assert words.tobytes().hex() == expected
