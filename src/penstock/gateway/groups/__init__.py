"""Consumer groups over HTTP: members of real groups, committed offsets with versions."""
