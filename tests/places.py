"""The tests that wait for processes, deadlines and browsers, the longest last."""

from pathlib import Path

TESTS = Path(__file__).parent
PLACES = (
    *("simulator", "contract", "agents", "portal/sources/test_monitoring.py", "story"),
    *("portal/operate/test_slow_clients.py", "crash", "story/test_serve.py", "browser"),
)
WAITING = [TESTS / place for place in PLACES]


def place_of(path: Path) -> int:
    """The number of the last place of ``PLACES`` that has the file; -1 if its tests do not wait."""
    return max((number for number, place in enumerate(WAITING) if path.is_relative_to(place)), default=-1)
