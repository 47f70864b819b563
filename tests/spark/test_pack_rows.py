"""Record batches as a column, for the task that writes them."""

from penstock.spark.pack_rows import batches_column


def test_batches_become_a_column_byte_for_byte() -> None:
    column = batches_column([memoryview(b"one"), memoryview(b""), memoryview(b"three")])
    assert column.to_pylist() == [b"one", b"", b"three"]
    assert batches_column([]).to_pylist() == []


def test_a_batch_is_released_once_it_is_in_the_column() -> None:
    content = bytearray(b"batch")
    column = batches_column([memoryview(content)])
    content.clear()  # a BufferError if it were still referenced
    assert column.to_pylist() == [b"batch"]
