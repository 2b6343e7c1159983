"""Find the usual agent version, and so the agents that differ: an update that stopped halfway shows two versions."""

import re
from collections.abc import Mapping


def most_common(versions: Mapping[str, int]) -> str:
    """The version that most agents report; the newer one on a tie. "" if no agent reports one.

    ``versions``: the number of agents by version.
    """
    reported = {version: count for version, count in versions.items() if version and count > 0}
    return max(reported, key=lambda version: (reported[version], _sort_key(version)), default="")


def is_at_least(version: str, least: str) -> bool:
    """Return whether a version is not older than ``least``. One that is unknown ("") is older."""
    return bool(version) and _sort_key(version)[0] >= _sort_key(least)[0]


def _sort_key(version: str) -> tuple[list[int], str]:
    """Numeric order of parts: 1.10 is newer than 1.9."""
    return [int(digits) for digits in re.findall(r"[0-9]{1,18}", version)], version
