"""The gateway's paths, a module for each family."""
