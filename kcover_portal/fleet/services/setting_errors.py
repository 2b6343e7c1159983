"""Django's errors about the columns of a cluster as reasons."""

from django.core.exceptions import ValidationError

from kcover import reasons
from kcover.values.quote import short_repr
from kcover_portal.fleet.models import Cluster


def reason_of(error: ValidationError, name: str) -> reasons.Reason:
    """Returns the reason why the column ``name`` does not accept its value.

    Addresses are not quoted, because they may contain secrets.
    """
    given = error.params or {}
    value = short_repr(given.get("value"))
    match error.code:
        case "invalid_choice":
            choices = getattr(Cluster._meta.get_field(name), "flatchoices", ())
            return reasons.of("value_not_one_of", known=", ".join(str(key) for key, _ in choices), value=value)
        case "max_length":
            return reasons.of("text_too_long", most=given["limit_value"])
        case "min_value":
            return reasons.of("number_too_small", least=given["limit_value"])
        case "max_value":
            return reasons.of("number_too_large", most=given["limit_value"])
        case "blank" | "null":
            return reasons.of("value_empty")
    if name == "decision_url":
        return reasons.of("decision_url_invalid")
    if name == "storage_class":
        return reasons.of("storage_class_invalid", value=value)
    return reasons.of("value_not_accepted", value=value)
