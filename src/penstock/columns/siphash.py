"""SipHash-2-4 with 128 bits of output, for kernels. It allocates nothing and trusts its bounds."""

from typing import Final

import numpy as np

from penstock.columns.compiled import ConstBytes, UInt64, UInt64s, inlined

_S0: Final = np.uint64(0)
_S8: Final = np.uint64(8)
_S13: Final = np.uint64(13)
_S16: Final = np.uint64(16)
_S17: Final = np.uint64(17)
_S21: Final = np.uint64(21)
_S32: Final = np.uint64(32)
_S43: Final = np.uint64(43)
_S47: Final = np.uint64(47)
_S48: Final = np.uint64(48)
_S51: Final = np.uint64(51)
_S56: Final = np.uint64(56)
_LOW_BYTE: Final = np.uint64(0xFF)
_WIDE: Final = np.uint64(0xEE)  # SipHash's marks for an output of 128 bits
_WIDER: Final = np.uint64(0xDD)
_V0: Final = np.uint64(0x736F6D6570736575)
_V1: Final = np.uint64(0x646F72616E646F6D)
_V2: Final = np.uint64(0x6C7967656E657261)
_V3: Final = np.uint64(0x7465646279746573)


@inlined
def _sip_round(
    v0: UInt64, v1: UInt64, v2: UInt64, v3: UInt64
) -> tuple[UInt64, UInt64, UInt64, UInt64]:
    """One round over the four words of the state."""
    v0 += v1
    v1 = (v1 << _S13) | (v1 >> _S51)
    v1 ^= v0
    v0 = (v0 << _S32) | (v0 >> _S32)
    v2 += v3
    v3 = (v3 << _S16) | (v3 >> _S48)
    v3 ^= v2
    v0 += v3
    v3 = (v3 << _S21) | (v3 >> _S43)
    v3 ^= v0
    v2 += v1
    v1 = (v1 << _S17) | (v1 >> _S47)
    v1 ^= v2
    v2 = (v2 << _S32) | (v2 >> _S32)
    return v0, v1, v2, v3


@inlined
def hash_key(source: ConstBytes, position: int, size: int, seed: UInt64s) -> tuple[UInt64, UInt64]:
    """SipHash-2-4 with 128 bits of output, as two little-endian words."""
    v0, v1, v2, v3 = seed[0] ^ _V0, seed[1] ^ _V1 ^ _WIDE, seed[0] ^ _V2, seed[1] ^ _V3
    whole = size & ~7
    for block in range(position, position + whole, 8):
        word = _S0
        for at in range(7, -1, -1):
            word = (word << _S8) | np.uint64(source[block + at])
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
    word = _S0
    for at in range(position + size - 1, position + whole - 1, -1):
        word = (word << _S8) | np.uint64(source[at])
    word |= (np.uint64(size) & _LOW_BYTE) << _S56
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _WIDE
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _WIDER
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3
