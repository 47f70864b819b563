"""Python's own objects inside kernels: what a dict has, the bytes of a text, the value of a number.

An object is its address here, 0 for none, and each function is one of CPython's C API. A kernel
that calls them holds the GIL (`object_kernel`). References are borrowed: a kernel takes its own one
(`add_reference`) of a container while it is inside it, since a converter that it calls is Python
and may give other threads a turn. After a function that can fail, the error is cleared.
"""

from typing import Any, Final

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from penstock.columns.compiled import (
    Int64s,
    inlined,
)

_WORD: Final = np.dtype(np.intp).itemsize
_TYPE_AT: Final = object.__basicsize__ - _WORD  # the type is the last thing in an object's head

# What kernels compare with. Addresses differ between processes, and compiled code is cached for
# others: so they are an argument, the array `KNOWN`, and these are the indexes in it.
NONE, TRUE, FALSE, INT, FLOAT, STR, BYTES, BYTEARRAY, LIST, DICT = range(10)
_KNOWN: Final = (None, True, False, int, float, str, bytes, bytearray, list, dict)

_address: Final = types.intp
_function: Any = types.ExternalFunction  # untyped in numba

add_reference: Any = _function("Py_IncRef", types.void(_address))
drop_reference: Any = _function("Py_DecRef", types.void(_address))
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

# A new reference, which the caller drops; or 0 when it raised
converted: Any = _function("PyObject_CallOneArg", _address(_address, _address))
# copy_memory(to, from, size): addresses
copy_memory: Any = _function("memcpy", _address(_address, _address, types.intp))
move_memory: Any = _function("memmove", _address(_address, _address, types.intp))  # may overlap


def _word_at(_: Any, _pointer: Any) -> Any:
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
