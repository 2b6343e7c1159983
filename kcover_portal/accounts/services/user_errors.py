"""Django's errors about user names and passwords as reasons."""

from itertools import chain

from django.core.exceptions import ValidationError

from kcover import reasons
from kcover.values.quote import short_repr


def reason_of(error: ValidationError, user: str) -> reasons.Reason:
    """Returns the reason for the first problem of a user, or of a password. ``user``: the name."""
    by_field = getattr(error, "error_dict", None)
    problem = next(chain(*by_field.values())) if by_field else error.error_list[0]
    given = problem.params or {}
    match problem.code:
        case "password_too_short":
            return reasons.of("password_too_short", least=given["min_length"])
        case "password_too_common":
            return reasons.of("password_too_common")
        case "unique":
            return reasons.of("user_name_taken", user=user)
        case "max_length":
            return reasons.of("text_too_long", most=given["limit_value"])
        case "blank" | "null" | "invalid":
            return reasons.of("user_name_invalid", user=short_repr(user))
    return reasons.of("password_rejected")
