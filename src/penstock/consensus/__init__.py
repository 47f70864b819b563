"""Agreement between brokers: who leads, and what can no longer be lost. Pure, without I/O."""
