"""Why the registry's verdict and the events differ, by language and change."""

from typing import Final

EXPLANATIONS: Final[dict[tuple[str, str], str]] = {}
