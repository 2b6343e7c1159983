"""``python tools/fault_texts.py``: prints the texts of the fault catalog as a module that ``makemessages`` can read.

The texts are data (``kcover/faults/data``), which ``xgettext`` cannot read. ``make messages`` writes the module,
collects its texts and removes it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kcover.faults import catalog  # noqa: E402 - the checkout is not installed


def main() -> None:
    """Prints one marked text on each line."""
    for text in catalog.texts():
        print(f"# xgettext:no-python-format\n_({text!r})")


main()
