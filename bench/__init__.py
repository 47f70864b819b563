"""One script per claim. Each runs us and a peer in the same run and prints the ratio."""
