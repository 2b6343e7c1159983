"""The settings of the agent: a YAML file (kcover's keys and the agent's own) and the environment, which takes
precedence.

kcover's own keys are forgiving, as in kcover: a value out of range becomes the default. Any other invalid value is
refused with its name and what to write instead.
"""

import errno
import json
import pathlib
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import Any

from agents import setting_parsers
from agents.errors import ConfigError
from agents.host import programs

READ_TIMEOUT_SECONDS = 30.0  # for a YAML file, which may be on a remote file system


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaX:
    """Limits of the MetaX checks (kcover's ``metaX``). ``gpu_count``: GPUs that must be present (None: eight, or the
    most ever seen). ``temperature`` in °C, ``ecc_max_count`` in double-bit errors."""

    hca_ids: tuple[str, ...] = ()
    day2_check_time: time = time(10, 0)
    gpu_count: int | None = None
    temperature: int = 85
    ecc_max_count: int = 64
    ntp_max_offset_ms: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of one agent.

    ``interval``: time between runs of the GPU probe. ``heartbeat``: time between reports when there is nothing to
    report. ``gpus``: GPUs that must be present (None: the most ever seen). ``hcas``, ``mounts``: adapters and mount
    points that must be present. ``peers``: hosts to ping (none: the neighbours that the portal
    names). ``pcie_min_gb_per_s``: limit of the check pciebw. ``checks`` run every ``check_interval``, ``deep_checks``
    every ``deep_interval`` if no process uses the GPUs. ``xid_events``: also listen to Xids from the driver.
    ``listen``: address of ``/metrics`` and ``/healthz``. ``check_lock``: see ``setup.check_lock``. ``preflight``: the
    folder of kcover's preflight reports.

    A token in a file is read again for each use, so that it can be rotated.
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
    checks: tuple[str, ...] = ("remapped", "gpupower", "pciebw", "dcgm", "ping")
    check_interval: timedelta = timedelta(hours=1)
    pcie_min_gb_per_s: float = 4.0
    deep_checks: tuple[str, ...] = ()
    deep_interval: timedelta = timedelta(hours=4)
    xid_events: bool = True
    listen: tuple[str, int] | None = ("127.0.0.1", 9412)
    vendor: str = "nvidia"
    check_lock: pathlib.Path | None = None
    preflight: pathlib.Path | None = pathlib.Path("/var/lib/kcover/preflight")
    metax: MetaX = field(default_factory=MetaX)
    unknown: tuple[str, ...] = ()

    def read_token(self) -> str:
        """The token to send to the portal. Raises OSError if its file cannot be read."""
        return self.token_file.read_text().strip() if self.token_file else self.token

    def read_boot_id(self) -> str:
        """The ID of the current boot. Raises OSError for an unreadable or empty file: an empty ID would look like
        another boot."""
        found = self.boot_id_file.read_text().strip()
        if not found:
            raise OSError(errno.ENODATA, "the file is empty", str(self.boot_id_file))
        return found


# Setting -> its environment variables (current name first, then older ones) and its key in the YAML file.
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
    "pcie_min_gb_per_s": (("KCOVER_AGENT_PCIEBW",), "PCIeBW"),
    "deep_checks": (("KCOVER_AGENT_DEEP_CHECKS",), "deepChecks"),
    "deep_interval": (("KCOVER_AGENT_DEEP_INTERVAL",), "deepInterval"),
    "xid_events": (("KCOVER_AGENT_XID_EVENTS",), "xidEvents"),
    "vendor": (("KCOVER_AGENT_VENDOR",), "vendor"),
    "check_lock": (("KCOVER_AGENT_CHECK_LOCK",), "checkLock"),
    "listen": (("KCOVER_AGENT_LISTEN",), "listen"),
    "preflight": (("KCOVER_AGENT_PREFLIGHT",), "preflight"),
}
_LISTS = ("hcas", "mounts", "peers", "checks", "deep_checks")
_SECONDS = ("heartbeat", "check_interval", "deep_interval")
_PATHS = ("token_file", "ca_file", "kmsg", "boot_id_file", "spool", "check_lock")
_KCOVER_KEYS = ("vendor", "interval", "metaX")
_METAX_KEYS = ("hcaIDs", "day2CheckHour", "day2CheckTime", "gpuNum", "temperature", "eccMaxCount", "ntpMaxOffsetMillis")


def load(file: pathlib.Path | None, environ: Mapping[str, str]) -> Config:
    """The settings from a YAML file (None: no file) and an environment. Raises ConfigError."""
    content = _read(file) if file is not None else {}
    given: dict[str, tuple[str, str]] = {}  # setting -> the name for error messages, and the value
    for setting, (variables, key) in SETTINGS.items():
        if content.get(key) not in (None, "") and key not in _KCOVER_KEYS:
            given[setting] = (key, _as_text(content[key]))
        for variable in reversed(variables):
            if environ.get(variable):
                given[setting] = (variable, environ[variable])
    if "token" in given and "token_file" in given:
        # The environment takes precedence over the file; both in one place is a mistake.
        names = {setting: given[setting][0] for setting in ("token", "token_file")}
        from_environment = [setting for setting, name in names.items() if name.startswith("KCOVER_")]
        if len(from_environment) != 1:
            raise ConfigError(f"{names['token']} and {names['token_file']}: set only one of them")
        del given["token_file" if from_environment == ["token"] else "token"]
    values: dict[str, Any] = {setting: _parse(setting, *named) for setting, named in given.items()}
    values.setdefault("node", socket.gethostname().lower())
    values.setdefault("vendor", setting_parsers.VENDORS.get(_integer(content, "vendor", 1, least=1), "nvidia"))
    metax = content.get("metaX")
    return Config(
        **values,
        interval=timedelta(
            seconds=min(_integer(content, "interval", 5, least=1), setting_parsers.MAX_INTERVAL_SECONDS)
        ),
        metax=_metax(metax if isinstance(metax, dict) else {}),
        unknown=_unknown(content, metax),
    )


def _read(file: pathlib.Path) -> dict[str, Any]:
    try:
        result = programs.run_module("agents.yaml_to_json", str(file), timeout=READ_TIMEOUT_SECONDS)
    except (OSError, programs.ProgramTimeout) as error:
        raise ConfigError(f"--config {file}: {error}") from error
    if result.status:
        raise ConfigError(f"--config {file}: {result.diagnostics}")
    content = json.loads(result.stdout)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"--config {file}: must contain a YAML mapping, not {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


def _parse(setting: str, name: str, value: str) -> Any:
    value = value.strip()
    if setting in _PATHS:
        return pathlib.Path(value)
    if setting in _SECONDS:
        return setting_parsers.seconds(name, value)
    if setting in _LISTS:
        return tuple(item for item in map(str.strip, value.split(",")) if item and value != "none")
    parser = _PARSERS.get(setting)
    return parser(name, value) if parser else value


def _as_text(value: object) -> str:
    """A YAML value, written as in the environment."""
    if isinstance(value, list):
        return ",".join(str(item) for item in value) or "none"
    return str(value)


def _metax(content: Mapping[str, Any]) -> MetaX:
    plain = MetaX()
    hcas = content.get("hcaIDs")
    return MetaX(
        hca_ids=tuple(str(hca) for hca in hcas) if isinstance(hcas, list) else (),
        day2_check_time=_time_of_day(content, plain.day2_check_time),
        gpu_count=count if (count := _integer(content, "gpuNum", -1, least=0)) >= 0 else None,
        temperature=_integer(content, "temperature", plain.temperature, least=1),
        ecc_max_count=_integer(content, "eccMaxCount", plain.ecc_max_count, least=0),
        ntp_max_offset_ms=_integer(content, "ntpMaxOffsetMillis", plain.ntp_max_offset_ms, least=0),
    )


def _time_of_day(content: Mapping[str, Any], default: time) -> time:
    """``day2CheckTime: "10:00"`` of newer kcover takes precedence over ``day2CheckHour: 10``. YAML 1.1 reads an
    unquoted 10:30 as 630, a number in base 60."""
    value = content.get("day2CheckTime")
    if isinstance(value, int) and 0 <= value < 1440:
        return time(value // 60, value % 60)
    if isinstance(value, str) and (match := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", value.strip())):
        return time(int(match[1]), int(match[2]))
    hour = _integer(content, "day2CheckHour", default.hour, least=0)
    return time(hour, 0) if hour < 24 else default


def _integer(content: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    value = content.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else default


def _unknown(content: Mapping[str, Any], metax: object) -> tuple[str, ...]:
    known = {key for _, key in SETTINGS.values()} | set(_KCOVER_KEYS)
    below = [f"metaX.{key}" for key in metax if key not in _METAX_KEYS] if isinstance(metax, dict) else []
    return tuple([key for key in content if key not in known] + below)


_PARSERS: Mapping[str, Callable[[str, str], Any]] = {
    "gpus": setting_parsers.count,
    "listen": setting_parsers.address,
    "node": setting_parsers.node,
    "pcie_min_gb_per_s": setting_parsers.bandwidth,
    "preflight": setting_parsers.folder,
    "reboot_command": setting_parsers.command,
    "url": setting_parsers.url,
    "vendor": setting_parsers.vendor,
    "xid_events": setting_parsers.switch,
}
