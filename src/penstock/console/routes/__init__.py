"""The console's paths, a module for each family."""
