"""The look of one state."""

from dataclasses import dataclass

from django.utils.functional import Promise


@dataclass(frozen=True, slots=True)
class Badge:
    """Label, tone and icon of a state; ``sign`` is its character on the fleet map."""

    label: str | Promise
    tone: str
    icon: str
    sign: str = ""
