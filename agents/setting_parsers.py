"""Parsers of settings' texts. Each takes the name for errors and the text, and raises ConfigError."""

import pathlib
import shlex
import urllib.parse
from datetime import timedelta

from agents.errors import ConfigError
from kcover.wire import fields

VENDORS = {1: "nvidia", 2: "metax", 3: "amd"}  # kcover knows 1 and 2
MAX_INTERVAL_SECONDS = 86_400.0
MAX_GB_PER_S = 1000.0


def node(name: str, value: str) -> str:
    """The name of a Kubernetes node."""
    if not fields.NODE.fullmatch(value) or len(value) > 253:
        raise ConfigError(f"{name}={value!r}: must be the name of a Kubernetes node (a-z, 0-9, '-', '.')")
    return value


def count(name: str, value: str) -> int:
    """A number of GPUs."""
    if not value.isascii() or not value.isdecimal() or int(value) > fields.MAX_GPUS:
        raise ConfigError(f"{name}={value!r}: must be a whole number from 0 to {fields.MAX_GPUS}")
    return int(value)


def switch(name: str, value: str) -> bool:
    """true or false."""
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={value!r}: must be true or false")
    return value.lower() == "true"


def vendor(name: str, value: str) -> str:
    """A vendor by name or by kcover's number."""
    found = VENDORS.get(int(value), value) if value.isascii() and value.isdecimal() else value.lower()
    if found not in VENDORS.values():
        raise ConfigError(f"{name}={value!r}: must be one of {', '.join(VENDORS.values())}")
    return found


def address(name: str, value: str) -> tuple[str, int] | None:
    """A host and port, None for ``none``."""
    if value == "none":
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{name}={value!r}: must be HOST:PORT, for example 127.0.0.1:9412, or none")
    return host.strip("[]"), int(port)


def url(name: str, value: str) -> str:
    """The address of the portal."""
    try:
        parts = urllib.parse.urlsplit(value)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "?" in value or "#" in value or "@" in value:
        raise ConfigError(f"{name}={value!r}: must be http://HOST[:PORT][/PATH] or https://…")
    return value


def seconds(name: str, value: str) -> timedelta:
    try:
        seconds = float(value)
    except ValueError:
        seconds = float("nan")
    if not 0.1 <= seconds <= MAX_INTERVAL_SECONDS:
        raise ConfigError(f"{name}={value!r}: must be a number of seconds from 0.1 to {MAX_INTERVAL_SECONDS:.0f}")
    return timedelta(seconds=seconds)


def bandwidth(name: str, value: str) -> float:
    """A bandwidth in GB/s."""
    try:
        limit = float(value)
    except ValueError:
        limit = float("nan")
    if not 0 < limit <= MAX_GB_PER_S:
        raise ConfigError(f"{name}={value!r}: must be a number of GB/s above 0, at most {MAX_GB_PER_S:.0f}")
    return limit


def command(name: str, value: str) -> tuple[str, ...]:
    """A program with its arguments."""
    try:
        command = tuple(shlex.split(value))
    except ValueError as error:
        raise ConfigError(f"{name}={value!r}: {error}; must be a program with its arguments") from error
    if not command:
        raise ConfigError(f"{name}: must be a program with its arguments")
    return command


def folder(_name: str, value: str) -> pathlib.Path | None:
    """A folder, None for ``none``."""
    return None if value == "none" else pathlib.Path(value)
