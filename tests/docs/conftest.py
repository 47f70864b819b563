"""For tests of what is beside the package: its benches, examples and pages."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # `bench` and `examples` are not installed
