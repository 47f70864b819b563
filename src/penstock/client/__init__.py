"""Events in a program's hands: wire frames, schemas from a cache, serializers, clients on top.

frame           how an event says which schema wrote it
registry        a registry over HTTP, and the two caches
avro_batches    Avro payloads <-> Arrow batches, many events at a time
"""
