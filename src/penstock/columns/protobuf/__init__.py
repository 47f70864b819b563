"""Protobuf payloads <-> Arrow, a whole batch at a time: programs and the kernels that run them.

program         the table of fields, slots and scopes; what can be wrong with a row
reading         small compiled parts: numbers and text in, values into slots
read_kernels    runs a decoding program over many payloads
decoding        payloads -> Arrow arrays: room for the kernel to write to, and Arrow over it
write_program   instructions of the other direction
write_kernels   runs an encoding program over many rows, from the last byte to the first
encoding        Arrow arrays -> payloads
Nothing here knows a schema: whoever has one compiles it to a program. Programs are tables of
integers, so a new schema never makes numba compile anything.
"""
