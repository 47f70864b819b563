"""Avro payloads <-> Arrow, a whole batch at a time: programs and the kernels that run them.

*_program        the instructions: to decode, to encode Arrow, to encode dicts
*_kernels        run them over many rows; read_primitives has the small parts of decoding
run              binds programs to their kernels, with memory from `columns.vm`
Nothing here knows a schema: `serde.avro` compiles it to a program. Programs are tables of integers,
so a new schema never makes numba compile anything.
"""
