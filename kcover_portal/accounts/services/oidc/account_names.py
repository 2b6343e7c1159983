"""Names of accounts that a provider's claims ask for: none that people could take for another account's.

The names stand on approvals and in the audit log, and the provider lets people choose some of them.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth.validators import ASCIIUsernameValidator
from django.core.exceptions import ValidationError

CLAIMS: Final = ("preferred_username", "email", "sub")
MAX_LENGTH: Final = 150
# What the audit log, the shell and the roles call themselves.
RESERVED: Final = frozenset(
    {"admin", "administrator", "anonymous", "nobody", "root", "superuser", "support"}
    | {"agent", "kcover", "kcover-portal", "policy", "portal", "provider", "rescue", "system", "worker"}
    | {"approver", "operator", "viewer"}
)
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l"})
_ALIKE_PAIRS: Final = (("rn", "m"), ("vv", "w"))


def usable(claims: Mapping[str, Any]) -> str:
    """The first claim that is a usable name, in ASCII; "" if none is. Accents are dropped (``José``: ``Jose``)."""
    for claim in CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str) and 0 < len(value) <= MAX_LENGTH:
            name = "".join(one for one in unicodedata.normalize("NFKD", value) if not unicodedata.combining(one))
            if len(name) <= MAX_LENGTH and _is_valid(name) and name.casefold() not in RESERVED:
                return name
    return ""


def _is_valid(name: str) -> bool:
    try:
        ASCIIUsernameValidator()(name)
    except ValidationError:
        return False
    return True


def are_alike(name: str, others: Iterable[str]) -> bool:
    """Returns whether people could take the name for one of the others (``anna1`` and ``annal``)."""
    shape = _shape(name)
    return any(_shape(other) == shape for other in others)


def _shape(name: str) -> str:
    found = unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)
    for pair, one in _ALIKE_PAIRS:
        found = found.replace(pair, one)
    return found
