"""Values of NVML as plain Python values."""

from typing import Any


def number(field: Any) -> int:
    """The value of a field, by its type (0 double, 1 uint, 2 ulong, 3 ulonglong, 4 longlong, 5 int, 6 ushort)."""
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return int(getattr(field.value, names[field.valueType]))


def pci_address(bus_id: str) -> str:
    """``00000000:4E:00.0`` written as in the kernel log: ``0000:4e:00``."""
    domain, _, remainder = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{remainder.removesuffix('.0')}"


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
