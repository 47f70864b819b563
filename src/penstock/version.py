"""The version of this package: apart from the facade, so that every layer may import it."""

__version__ = "0.2.0"
