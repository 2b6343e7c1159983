"""The stories of one run: the commit chooses the files and the place of each story. `make verify` has all."""

from tests.share import in_share

PLACES = ("postgres", "sqlite")
# The files that take turns: about the same CPU in each. The others are the shortest ways through everything: always.
TURNS = (
    ("test_outages.py", "test_installed.py"),
    ("test_actions.py",),
    ("test_live_stop.py", "test_probation.py", "test_apiserver.py"),
    ("test_burn_in.py", "test_returns.py", "test_parts.py", "test_status.py", "test_image.py"),
)
# The dearest, which have no place: one has its turn when other stories are in the first place, the next in the second.
ALTERNATE = ("test_outages.py", "test_installed.py")


def in_turn(file: str, place: str | None, *, whole: bool) -> bool:
    """Returns whether this run has the story of a file in a place; None: a story that has no place.

    Each share has one turn, and with it one place. Who names tests (not ``whole``) has all files, each in one place.
    """
    turn = next((number for number, files in enumerate(TURNS) if file in files), None) if whole else None
    number, shares = (0, 1) if turn is None else (turn, len(TURNS))
    if place is None and (turn is None or file not in ALTERNATE):
        return in_share(number, shares=shares)
    half = ALTERNATE.index(file) if place is None else PLACES.index(place)
    return in_share(number + shares * half, shares=shares * len(PLACES))
