"""What the agent is told: a YAML file (kcover's keys and its own) and the environment, which wins.

kcover's own values are forgiving, as kcover is: a value out of range is its default. Everything else is refused with
its name and what is accepted.
"""

import errno
import json
import pathlib
import re
import shlex
import socket
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import Any

from agents import programs
from agents.errors import ConfigError
from kcover.wire import fields

VENDORS = {1: "nvidia", 2: "metax", 3: "amd"}  # 1 and 2 are kcover's
MAX_INTERVAL = 86_400.0
READ_SECONDS = 30.0  # for a YAML file, on whatever it may lie


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaX:
    """Limits of the MetaX checks (kcover's ``metaX``): GPUs there must be (None: eight, or as many as there ever were),
    degrees Celsius, double-bit errors, ms."""

    hca_ids: tuple[str, ...] = ()
    day2_check_time: time = time(10, 0)
    gpu_count: int | None = None
    temperature: int = 85
    ecc_max_count: int = 64
    ntp_max_offset_ms: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One agent's settings. ``interval``: between looks at devices; ``heartbeat``: between reports with nothing to
    tell.

    ``gpus``: how many there must be (None: the most that there ever were). ``hcas``, ``mounts``: adapters and mount
    points that must be there. ``peers``: whom to ping. ``checks`` run each ``check_interval``, ``deep_checks`` each
    ``deep_interval`` where nobody uses the GPUs. ``xid_events``: listen to the driver's Xids beside the kernel log.
    ``listen``: where ``/metrics`` and ``/healthz`` are. ``check_lock``: ``setup.check_lock``.

    The token is read again at each use where it is a file, so that it can be rotated.
    """

    node: str
    url: str = ""
    token: str = ""
    token_file: pathlib.Path | None = None
    cluster: str | None = None
    ca_file: pathlib.Path | None = None
    kmsg: pathlib.Path = pathlib.Path("/dev/kmsg")
    boot_id_file: pathlib.Path = pathlib.Path("/proc/sys/kernel/random/boot_id")
    spool: pathlib.Path = pathlib.Path("/var/lib/kcover-agent")
    heartbeat: timedelta = timedelta(seconds=30)
    interval: timedelta = timedelta(seconds=5)
    reboot_command: tuple[str, ...] = ("systemctl", "reboot")
    gpus: int | None = None
    hcas: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    checks: tuple[str, ...] = ("remapped", "gpupower", "pciebw", "dcgm")
    check_interval: timedelta = timedelta(hours=1)
    deep_checks: tuple[str, ...] = ()
    deep_interval: timedelta = timedelta(hours=4)
    xid_events: bool = True
    listen: tuple[str, int] | None = ("127.0.0.1", 9412)
    vendor: str = "nvidia"
    check_lock: pathlib.Path | None = None
    metax: MetaX = field(default_factory=MetaX)
    unknown: tuple[str, ...] = ()

    def read_token(self) -> str:
        """The token to show to the portal. Raises OSError for an unreadable file."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def read_boot_id(self) -> str:
        """The identity of the boot that runs now. Raises OSError for an unreadable or empty file: no boot is nameless,
        and taken for one, it would be another boot than the one before."""
        found = self.boot_id_file.read_text().strip()
        if not found:
            raise OSError(errno.ENODATA, "it is empty", str(self.boot_id_file))
        return found


# Own setting -> its environment variables (the later ones are older names) and its key in the YAML file.
SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "node": (("NODE_NAME", "FAST_RECOVERY_NODE_NAME"), "nodeName"),
    "url": (("KCOVER_AGENT_URL",), "url"),
    "token": (("KCOVER_AGENT_TOKEN",), "token"),
    "token_file": (("KCOVER_AGENT_TOKEN_FILE",), "tokenFile"),
    "cluster": (("KCOVER_AGENT_CLUSTER",), "cluster"),
    "ca_file": (("KCOVER_AGENT_CA_FILE",), "caFile"),
    "kmsg": (("KCOVER_AGENT_KMSG",), "kmsg"),
    "boot_id_file": (("KCOVER_AGENT_BOOT_ID",), "bootIdFile"),
    "spool": (("KCOVER_AGENT_SPOOL",), "spool"),
    "heartbeat": (("KCOVER_AGENT_INTERVAL",), "heartbeat"),
    "reboot_command": (("KCOVER_AGENT_REBOOT_COMMAND",), "rebootCommand"),
    "gpus": (("KCOVER_AGENT_GPUS",), "gpus"),
    "hcas": (("KCOVER_AGENT_HCAS",), "hcas"),
    "mounts": (("KCOVER_AGENT_MOUNTS",), "mounts"),
    "peers": (("KCOVER_AGENT_PEERS",), "peers"),
    "checks": (("KCOVER_AGENT_CHECKS",), "checks"),
    "check_interval": (("KCOVER_AGENT_CHECK_INTERVAL",), "checkInterval"),
    "deep_checks": (("KCOVER_AGENT_DEEP_CHECKS",), "deepChecks"),
    "deep_interval": (("KCOVER_AGENT_DEEP_INTERVAL",), "deepInterval"),
    "xid_events": (("KCOVER_AGENT_XID_EVENTS",), "xidEvents"),
    "vendor": (("KCOVER_AGENT_VENDOR",), "vendor"),
    "check_lock": (("KCOVER_AGENT_CHECK_LOCK",), "checkLock"),
    "listen": (("KCOVER_AGENT_LISTEN",), "listen"),
}
_LISTS = ("hcas", "mounts", "peers", "checks", "deep_checks")
_SECONDS = ("heartbeat", "check_interval", "deep_interval")
_PATHS = ("token_file", "ca_file", "kmsg", "boot_id_file", "spool", "check_lock")
_KCOVER_KEYS = ("vendor", "interval", "metaX")
_METAX_KEYS = ("hcaIDs", "day2CheckHour", "day2CheckTime", "gpuNum", "temperature", "eccMaxCount", "ntpMaxOffsetMillis")


def load(file: pathlib.Path | None, environ: Mapping[str, str]) -> Config:
    """The settings from a YAML file (None: none) and an environment. Raises ConfigError."""
    content = _read(file) if file is not None else {}
    given: dict[str, tuple[str, str]] = {}  # setting -> the name to complain about, value
    for setting, (variables, key) in SETTINGS.items():
        if content.get(key) not in (None, "") and key not in _KCOVER_KEYS:
            given[setting] = (key, _as_text(content[key]))
        for variable in reversed(variables):
            if environ.get(variable):
                given[setting] = (variable, environ[variable])
    if "token" in given and "token_file" in given:
        # The environment's wins over the file's; both from one place is a slip.
        names = {setting: given[setting][0] for setting in ("token", "token_file")}
        from_environment = [setting for setting, name in names.items() if name.startswith("KCOVER_")]
        if len(from_environment) != 1:
            raise ConfigError(f"{names['token']} and {names['token_file']}: give one of them")
        del given["token_file" if from_environment == ["token"] else "token"]
    values: dict[str, Any] = {setting: _parse(setting, *named) for setting, named in given.items()}
    values.setdefault("node", socket.gethostname().lower())
    values.setdefault("vendor", VENDORS.get(_whole(content, "vendor", 1, least=1), VENDORS[1]))
    metax = content.get("metaX")
    return Config(
        **values,
        interval=timedelta(seconds=min(_whole(content, "interval", 5, least=1), MAX_INTERVAL)),
        metax=_metax(metax if isinstance(metax, dict) else {}),
        unknown=_unknown(content, metax),
    )


def _read(file: pathlib.Path) -> dict[str, Any]:
    try:
        ended = programs.run_own("agents.yaml_file", str(file), timeout=READ_SECONDS)
    except (OSError, programs.TookTooLong) as error:
        raise ConfigError(f"--config {file}: {error}") from error
    if ended.status:
        raise ConfigError(f"--config {file}: {ended.said}")
    content = json.loads(ended.out)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {file}: a YAML mapping is accepted, not {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


def _parse(setting: str, name: str, value: str) -> Any:
    value = value.strip()
    if setting in _PATHS:
        return pathlib.Path(value)
    if setting == "url":
        return _url(name, value)
    if setting in _SECONDS:
        return _seconds(name, value)
    if setting in _LISTS:
        listed = [one.strip() for one in value.split(",")]
        return tuple(one for one in listed if one and value != "none")
    if setting == "gpus":
        return _count(name, value)
    if setting == "xid_events":
        return _switch(name, value)
    if setting == "listen":
        return _address(name, value)
    if setting == "vendor":
        return _vendor(name, value)
    if setting == "node":
        if not fields.NODE.fullmatch(value) or len(value) > 253:
            raise ConfigError(f"{name}={value!r}: accepted is the name of a Kubernetes node (a-z, 0-9, '-', '.')")
        return value
    if setting == "reboot_command":
        return _command(name, value)
    return value


def _as_text(value: object) -> str:
    """A YAML value as it would be written in the environment."""
    if isinstance(value, list):
        return ",".join(str(one) for one in value) or "none"
    return str(value)


def _count(name: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) > fields.MAX_GPUS:
        raise ConfigError(f"{name}={value!r}: accepted are whole numbers from 0 to {fields.MAX_GPUS}")
    return int(value)


def _switch(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={value!r}: accepted are true and false")
    return value.lower() == "true"


def _vendor(name: str, value: str) -> str:
    found = VENDORS.get(int(value), value) if value.isascii() and value.isdecimal() else value.lower()
    if found not in VENDORS.values():
        raise ConfigError(f"{name}={value!r}: accepted are {', '.join(VENDORS.values())}")
    return found


def _address(name: str, value: str) -> tuple[str, int] | None:
    if value == "none":
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{name}={value!r}: accepted is HOST:PORT, 127.0.0.1:9412 for example, or none")
    return host.strip("[]"), int(port)


def _url(name: str, value: str) -> str:
    try:
        parts = urllib.parse.urlsplit(value)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "?" in value or "#" in value or "@" in value:
        raise ConfigError(f"{name}={value!r}: accepted is http://HOST[:PORT][/PATH] or https://…")
    return value


def _seconds(name: str, value: str) -> timedelta:
    try:
        seconds = float(value)
    except ValueError:
        seconds = float("nan")
    if not 0.1 <= seconds <= MAX_INTERVAL:
        raise ConfigError(f"{name}={value!r}: accepted are seconds from 0.1 to {MAX_INTERVAL:.0f}")
    return timedelta(seconds=seconds)


def _command(name: str, value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise ConfigError(f"{name}={value!r}: {error}; accepted is a program with its arguments") from error
    if not words:
        raise ConfigError(f"{name}: accepted is a program with its arguments")
    return words


def _metax(content: Mapping[str, Any]) -> MetaX:
    plain = MetaX()
    hcas = content.get("hcaIDs")
    return MetaX(
        hca_ids=tuple(str(hca) for hca in hcas) if isinstance(hcas, list) else (),
        day2_check_time=_time_of_day(content, plain.day2_check_time),
        gpu_count=count if (count := _whole(content, "gpuNum", -1, least=0)) >= 0 else None,
        temperature=_whole(content, "temperature", plain.temperature, least=1),
        ecc_max_count=_whole(content, "eccMaxCount", plain.ecc_max_count, least=0),
        ntp_max_offset_ms=_whole(content, "ntpMaxOffsetMillis", plain.ntp_max_offset_ms, least=0),
    )


def _time_of_day(content: Mapping[str, Any], default: time) -> time:
    """Newer kcover's ``day2CheckTime: "10:00"`` before older ``day2CheckHour: 10``. YAML 1.1 reads an unquoted 10:30 as
    the number 630, base 60."""
    value = content.get("day2CheckTime")
    if isinstance(value, int) and 0 <= value < 1440:
        return time(value // 60, value % 60)
    if isinstance(value, str) and (match := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", value.strip())):
        return time(int(match[1]), int(match[2]))
    hour = _whole(content, "day2CheckHour", default.hour, least=0)
    return time(hour, 0) if hour < 24 else default


def _whole(content: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    value = content.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else default


def _unknown(content: Mapping[str, Any], metax: object) -> tuple[str, ...]:
    known = {key for _, key in SETTINGS.values()} | set(_KCOVER_KEYS)
    below = [f"metaX.{key}" for key in metax if key not in _METAX_KEYS] if isinstance(metax, dict) else []
    return tuple([key for key in content if key not in known] + below)
