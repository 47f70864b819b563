"""Python's own objects inside kernels: what a dict has, the bytes of a text, the value of a number.

An object is its address here, 0 for none, and each function is one of CPython's C API. A kernel
that calls them holds the GIL (`object_kernel`). References are borrowed: a kernel keeps (`keep`) a
container while it is inside it and lets it go after, since a converter it calls is Python and may
let other threads in. After a function that says it can fail the error is cleared before the next.

Whether bytes are text, for kernels: what no reader of ours may take on trust.
"""

from typing import Any, Final

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from penstock.columns.compiled import (
    ConstBytes,
    Int64s,
    inlined,
    outlined,
)

_WORD: Final = np.dtype(np.intp).itemsize
_TYPE_AT: Final = object.__basicsize__ - _WORD  # the type is the last thing in an object's head

# What kernels compare with. Addresses differ from process to process and compiled code is kept for
# the next one, so they come in as an array, `KNOWN`, and here is what is where in it.
NONE, TRUE, FALSE, INT, FLOAT, STR, BYTES, BYTEARRAY, LIST, DICT = range(10)
_KNOWN: Final = (None, True, False, int, float, str, bytes, bytearray, list, dict)

_address: Final = types.intp
_function: Any = types.ExternalFunction  # untyped in numba

keep: Any = _function("Py_IncRef", types.void(_address))
let_go: Any = _function("Py_DecRef", types.void(_address))
clear_error: Any = _function("PyErr_Clear", types.void())
error_raised: Any = _function("PyErr_Occurred", _address())  # 0 if none is

dict_size: Any = _function("PyDict_Size", types.intp(_address))
dict_value: Any = _function("PyDict_GetItemWithError", _address(_address, _address))  # can fail
# next_entry(dict, address of the cursor, of the key, of the value): 0 after the last
next_entry: Any = _function(
    "PyDict_Next", types.int32(_address, types.intp, types.intp, types.intp)
)
list_size: Any = _function("PyList_Size", types.intp(_address))
list_item: Any = _function("PyList_GetItem", _address(_address, types.intp))  # can fail

# text_content(text, address of the size): where its UTF-8 is; fails for halves of surrogate pairs
text_content: Any = _function("PyUnicode_AsUTF8AndSize", _address(_address, types.intp))
bytes_size: Any = _function("PyBytes_Size", types.intp(_address))
bytes_content: Any = _function("PyBytes_AsString", _address(_address))
bytearray_size: Any = _function("PyByteArray_Size", types.intp(_address))
bytearray_content: Any = _function("PyByteArray_AsString", _address(_address))

# int_value(number, address of what is not 0 if it has more than 64 bits)
int_value: Any = _function("PyLong_AsLongLongAndOverflow", types.int64(_address, types.intp))
unsigned_value: Any = _function("PyLong_AsUnsignedLongLong", types.uint64(_address))  # can fail
float_value: Any = _function("PyFloat_AsDouble", types.float64(_address))

# A new reference, or 0 when it raised: the caller's to let go
converted: Any = _function("PyObject_CallOneArg", _address(_address, _address))
# copy_memory(to, from, size): addresses
copy_memory: Any = _function("memcpy", _address(_address, _address, types.intp))
move_memory: Any = _function("memmove", _address(_address, _address, types.intp))  # may overlap


def _word_at(_: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(signature.return_type)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

    return types.intp(types.intp), emit


_load: Any = intrinsic(_word_at)


@inlined
def type_of(value: int) -> int:
    """The address of an object's type."""
    return _load(value + _TYPE_AT)  # type: ignore[no-any-return]  # an int once compiled


def addresses_of(objects: tuple[object, ...]) -> Int64s:
    """Where the objects are, for as long as the tuple lives."""
    return np.array([id(each) for each in objects], dtype=np.int64)


KNOWN: Final = addresses_of(_KNOWN)


UUID_CHARACTERS: Final = 36


@inlined
def is_text(source: ConstBytes, start: int, end: int) -> bool:
    """Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    index = start
    while index < end and source[index] < 0x80:
        index += 1
    while index < end:
        lead = source[index]
        index += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
        if index + more > end:
            return False
        second = source[index]
        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
        high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
        if second < low or second > high:
            return False
        for later in range(index + 1, index + more):
            if source[later] & 0xC0 != 0x80:
                return False
        index += more
    return True


@outlined
def is_uuid(source: ConstBytes, start: int, size: int) -> bool:
    """Whether text is a UUID as it is usually written: 8-4-4-4-12 hexadecimal digits."""
    if size != UUID_CHARACTERS:
        return False
    for index in range(size):
        byte = source[start + index]
        if index == 8 or index == 13 or index == 18 or index == 23:
            if byte != 0x2D:
                return False
        elif not (0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66):
            return False
    return True
