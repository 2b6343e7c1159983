"""The modes of automation, and which of them is stricter."""

from typing import Final

MODES: Final = ("paused", "shadow", "approve", "enforce")  # strictest first
RULE_MODES: Final = ("shadow", "approve", "enforce")


def strictest(*modes: str) -> str:
    """The strictest of the modes: paused > shadow > approve > enforce."""
    return min(modes, key=MODES.index)
