"""Which agents' version is the usual one, and so which agents differ: an update that went half way shows as two."""

import re
from collections.abc import Mapping


def usual(versions: Mapping[str, int]) -> str:
    """The version that most agents have; of two that equally many have, the newer. "" where nobody says one.

    ``versions``: how many agents say each.
    """
    said = {version: count for version, count in versions.items() if version and count > 0}
    return max(said, key=lambda version: (said[version], _order(version)), default="")


def _order(version: str) -> tuple[list[int], str]:
    """As versions are counted: 1.10 is newer than 1.9."""
    return [int(digits) for digits in re.findall(r"[0-9]{1,18}", version)], version
