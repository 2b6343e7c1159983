"""``tools/verify_proof.py`` as a module. Needs no Django."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "tools" / "verify_proof.py"

_spec = importlib.util.spec_from_file_location("verify_proof", FILE)
assert _spec is not None
assert _spec.loader is not None
verifier: Any = importlib.util.module_from_spec(_spec)
sys.modules["verify_proof"] = verifier
_spec.loader.exec_module(verifier)
