"""Python imports this module when it starts: here it hides the libraries of all extras."""

import sys
from importlib.abc import MetaPathFinder

HIDDEN = ("grpc", "grpc_tools", "opentelemetry.sdk", "pandas", "pyarrow", "pyspark")


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse what is hidden; leave the rest to the other finders."""
        if any(f"{name}.".startswith(f"{hidden}.") for hidden in HIDDEN):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Hidden())
