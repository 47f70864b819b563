"""The registry's HTTP interface, as Confluent's clients know it."""
