"""What the kernels of Avro and Protobuf share.

assembler       instructions and what they refer to
driver          runs a kernel over all rows, with more memory when it is full
slots           Arrow arrays while they are filled; slot_memory has their arena
arrow_output    the arrays over filled slots
arrow_inputs    Arrow arrays as kernels read them
dict_walk       dicts and lists as kernels read them, through python_objects
payloads        limits and results
"""
