"""The names of the parts that are repaired."""

from collections.abc import Mapping
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from kcover.repairs import repairs

NAMES: Final[Mapping[str, str | Promise]] = {
    "node": _("Whole machine"),
    "gpu": "GPU",
    "board": pgettext_lazy("part", "Board"),
    "nvswitch": "NVSwitch",
    "nic": _("Network adapter"),
    "cable": pgettext_lazy("part", "Cable"),
    "disk": pgettext_lazy("part", "Disk"),
    "memory": pgettext_lazy("part", "Memory"),
    "cpu": "CPU",
    "power-supply": _("Power supply"),
    "cooling": pgettext_lazy("part", "Cooling"),
}
assert tuple(NAMES) == repairs.PART_KINDS


def name(part: repairs.Part) -> str:
    """A part in words: its kind, slot and serial number."""
    return " ".join(str(word) for word in (NAMES.get(part.kind, part.kind), part.slot, part.serial) if word)
