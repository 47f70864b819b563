"""Messages that are packed by hand: each API in one module, typed requests and responses."""
