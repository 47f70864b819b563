"""Avro payloads <-> Arrow, a whole batch at a time: programs and the kernels that run them.

program         the instructions, the table of columns being filled, what can be wrong with a row
read_kernels    runs a decoding program over many payloads
decoding        payloads -> Arrow arrays: room for the kernel to write to, and Arrow over it
write_kernels   runs an encoding program over many rows
encoding        Arrow arrays -> payloads
Nothing here knows a schema: whoever has one compiles it to a program. Programs are tables of
integers, so a new schema never makes numba compile anything.
"""
