"""The form that changes a validation profile, as JSON."""

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy

from kcover import reasons
from kcover.validation import profiles
from kcover.values import strict_json
from kcover_portal.console.forms import Act
from kcover_portal.lib import localization


class ProfileText(Act):
    """What the profile asks for; blank: the built-in profile."""

    document = forms.CharField(
        label=gettext_lazy("Checks and probes (JSON)"),
        required=False,
        max_length=10_000,
        help_text=gettext_lazy("Leave blank for the built-in profile."),
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 16, "spellcheck": "false"}),
    )
    field_order = ("document", "reason")

    def __init__(self, data: Any = None, *, profile: profiles.Profile) -> None:
        super().__init__(data)
        self.initial["document"] = json.dumps(profile.to_json(), indent=1)

    def clean_document(self) -> Any:
        """The profile as JSON; None for the built-in one. Names the path of each problem."""
        text = self.cleaned_data["document"]
        if not text:
            return None
        try:
            document = strict_json.loads(text)
            profiles.parse(document)
        except profiles.ProfileInvalid as invalid:
            raise ValidationError([_at(path, localization.say(why)) for path, why in invalid.problems]) from invalid
        except reasons.ExplainedError as error:
            raise ValidationError(localization.say(reasons.of("parse_error", problem=error.reason))) from error
        except ValueError as error:
            raise ValidationError(localization.say(reasons.of("parse_error", problem=str(error)))) from error
        return document


def _at(path: str, problem: str) -> str:
    return f"{path}: {problem}" if path else problem
