"""Serial numbers of parts: those that identify a part, and the placeholders that firmware has instead."""

import re
from typing import Final

# In lower case, without spaces and punctuation. From DMI tables of boards that left the factory without a number.
PLACEHOLDERS: Final = frozenset(
    (
        *("tobefilledbyoem", "defaultstring", "systemserialnumber", "baseboardserialnumber", "chassisserialnumber"),
        *("none", "na", "null", "unknown", "notspecified", "notapplicable", "notavailable", "notprovided", "oem"),
        *("empty", "invalid", "default", "serial", "serialnumber", "sn", "test", "0123456789", "123456789"),
        *("1234567890", "12345678", "1234567", "123456", "12345", "1234", "ffffffff"),
    )
)
_NOISE: Final = re.compile(r"[^a-z0-9]")


def known(serial: str) -> str:
    """The serial number without spaces around it; "" for a placeholder, such as ``To be filled by O.E.M.``."""
    text = serial.strip()
    plain = _NOISE.sub("", text.lower())
    if len(set(plain)) <= 1 or plain in PLACEHOLDERS:  # nothing, or one character repeated
        return ""
    return text
