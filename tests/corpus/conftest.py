"""The corpus stands beside the packages, not in them: found from any working directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
