"""The taints with which other systems keep work off faulty nodes, by the system. A person may have them removed.

Konduktor: what its node health controller sets; its ``konduktor reset`` removes the same.
"""

from collections.abc import Mapping
from typing import Final

KONDUKTOR: Final = "konduktor"
KNOWN: Final[Mapping[str, tuple[str, str, str]]] = {  # key, value, effect
    KONDUKTOR: ("trainy.konduktor.ai/faulty", "true", "NoSchedule"),
}
