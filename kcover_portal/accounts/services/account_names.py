"""Names of new accounts: none that people could take for another account's, or for a part of the portal.

The names stand on approvals and in the audit log. A provider of single sign-on lets people choose some of them, so
claims are held to more than names that an admin gives.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth.validators import ASCIIUsernameValidator
from django.core.exceptions import ValidationError

from kcover import reasons
from kcover_portal.accounts.models import User

CLAIMS: Final = ("preferred_username", "email", "sub")
MAX_LENGTH: Final = 150
# What parts of the portal call themselves in the audit log.
PARTS: Final = frozenset(
    {"agent", "kcover", "kcover-portal", "policy", "portal", "provider", "rescue", "system", "worker"}
)
# The same, and what the shell and the roles call themselves.
RESERVED: Final = PARTS | {
    *("admin", "administrator", "anonymous", "nobody", "root", "superuser", "support"),
    *("approver", "operator", "viewer"),
}
# Cyrillic and Greek letters that look like Latin ones, in lower case (Unicode TR39, confusables).
_CONFUSABLE: Final = str.maketrans(dict(zip("аеорсухіјѕһԁԛԝɡοαυνρκιτ", "aeopcyxijshdqwgoauvpkit", strict=True)))
_ALIKE: Final = str.maketrans({"0": "o", "1": "l", "i": "l", "ı": "l"})  # what a provider's names may not differ by
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


def refusal(name: str) -> reasons.Reason | None:
    """Why an admin's new account cannot have the name; None if it can. One query."""
    if name.casefold() in PARTS:
        return reasons.of("user_name_reserved", user=name)
    shape = _letters(name)
    other = next((one for one in User.objects.values_list("username", flat=True) if _letters(one) == shape), None)
    return reasons.of("user_name_alike", user=name, other=other) if other is not None and other != name else None


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


def _letters(name: str) -> str:
    """The name without case and accents, in Latin letters that look like its own."""
    plain = (one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    return "".join(plain).casefold().translate(_CONFUSABLE)


def _shape(name: str) -> str:
    found = _letters(name).translate(_ALIKE)
    for pair, one in _ALIKE_PAIRS:
        found = found.replace(pair, one)
    return found
