"""The subjects by which the portal finds entries again: acts and queries build them here, and nothing parses them.

The ledger has an index on the subject and none on ``data``.
"""

MAX_SUBJECT = 400  # characters; the length of the ledger's column


def user(name: str) -> str:
    """Returns the subject of acts on a user."""
    return f"user {name}"


def role(name: str) -> str:
    """Returns the subject of acts on a custom role."""
    return f"role {name}"


def group(name: str) -> str:
    """Returns the subject of acts on the role of a group of the identity provider."""
    return f"group {name}"[:MAX_SUBJECT]


def view(listing: str, name: str) -> str:
    """Returns the subject of acts on a shared view of a list."""
    return f"view {listing} {name}"[:MAX_SUBJECT]


def part(number: int) -> str:
    """Returns the subject of acts on a part."""
    return f"part {number}"


def repair(number: int) -> str:
    """Returns the subject of acts on a repair."""
    return f"repair {number}"
