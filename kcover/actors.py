"""The names of actors in rows, votes and the audit log: ``user:anna``, ``token:decision kcd_Ab12``, ``system``.

Only this module makes and reads these names. Rows that must tell kinds of requesters apart have a column for the kind.
"""

USER = "user:"
TOKEN = "token:"  # nosec B105
VENDOR = "vendor:"
SYSTEM = "system"


def user(name: str) -> str:
    """Returns the actor who is the user of this name."""
    return f"{USER}{name}"


def token(name: str) -> str:
    """Returns the actor that is a program; ``name``: of its token."""
    return f"{TOKEN}{name}"


def vendor(sink: str) -> str:
    """Returns the actor that is a vendor; ``sink``: of the audit stream, whose secret signs its events."""
    return f"{VENDOR}{sink}"


def is_user(actor: str) -> bool:
    """Returns whether the actor is a person with an account."""
    return actor.startswith(USER)


def is_token(actor: str) -> bool:
    """Returns whether the actor is a program. A program never stands for a person."""
    return actor.startswith(TOKEN)


def username(actor: str) -> str:
    """Returns the user's name; the name of another actor as it is."""
    return actor.removeprefix(USER)
