"""The requirements of the selected tests: ``python3 -m tests.needs ARGUMENTS-OF-PYTEST`` prints one word for each.

`make test ARGS="tests/kcover -x"` installs and starts only that. Without a path among the arguments the answer is
everything. Standard library only: it runs before .venv exists.
"""

import sys
from collections.abc import Sequence
from pathlib import PurePosixPath

POSTGRES, REDIS, CHROMIUM, GETTEXT, PROMETHEUS = "postgres", "redis", "chromium", "gettext", "prometheus"
ALL = frozenset({POSTGRES, REDIS, CHROMIUM, GETTEXT, PROMETHEUS})
DATABASE = frozenset({POSTGRES})
SERVERS = frozenset({POSTGRES, REDIS})
NOTHING: frozenset[str] = frozenset()

# Of the places that contain a chosen path the longest counts; a chosen folder also needs what the places in it need.
NEEDS = {
    "tests/agents": NOTHING,
    "tests/bench": SERVERS,
    "tests/browser": frozenset({CHROMIUM}),  # the product on SQLite
    "tests/contract": DATABASE,
    "tests/crash": SERVERS,
    "tests/deploy": NOTHING,
    "tests/docs": NOTHING,
    "tests/invariants": SERVERS,
    "tests/kcover": NOTHING,
    "tests/oidc_provider": NOTHING,  # a provider that other tests start
    "tests/portal": SERVERS,
    "tests/portal/accounts": DATABASE,
    "tests/portal/fleet": DATABASE,
    "tests/portal/incidents": DATABASE,
    "tests/portal/ledger": DATABASE,
    "tests/portal/policies": DATABASE,
    "tests/portal/preflight": DATABASE,
    "tests/portal/rescue": DATABASE,
    "tests/portal/sources": frozenset({POSTGRES, PROMETHEUS}),
    "tests/kube_fake": NOTHING,  # the fake of the Kubernetes API
    "tests/simulator": NOTHING,
    "tests/story": SERVERS,
    "tests/test_servers.py": frozenset({REDIS}),
    "tests/test_suite.py": SERVERS,
}


# Options of pytest whose value is a path, but not one to run.
WITH_PATH = ("--ignore", "--ignore-glob", "--deselect", "--confcutdir", "--rootdir")


def needed(arguments: Sequence[str]) -> frozenset[str]:
    """What the tests that pytest's ``arguments`` choose need; everything if no argument is a path below tests/."""
    paths = [
        PurePosixPath(argument.split("::")[0])
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if before not in WITH_PATH
    ]
    chosen = [path for path in paths if path.parts[:1] == ("tests",)]
    return frozenset().union(*map(_of, chosen)) if chosen else ALL


def _of(path: PurePosixPath) -> frozenset[str]:
    places = [place for place in NEEDS if path.is_relative_to(place)]
    if not places:
        return NOTHING if path.parent == PurePosixPath("tests") and path.suffix else ALL  # a file that reads the code
    inside = (needs for place, needs in NEEDS.items() if PurePosixPath(place).is_relative_to(path))
    return NEEDS[max(places, key=len)].union(*inside)


if __name__ == "__main__":
    print(*sorted(needed(sys.argv[1:])))
