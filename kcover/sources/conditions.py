"""Conditions of nodes that are faults: a table of type, status and reason, with presets for well-known writers.

``Unknown`` is never proof: such a condition neither opens nor ends anything. The kubelet's own Ready and the portal's
conditions are left out, because the portal acts on them by other means or wrote them itself.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from kcover import reasons
from kcover.faults.weight import Weight, is_of_monitor, named_xids, of_xids
from kcover.sources.observation import Observation, Unreadable
from kcover.values.quote import short_text

OWN_PREFIXES: Final = ("kcover.io/", "Kcover", "KCover")
NOT_FAULTS: Final = ("Ready", "NetworkUnavailable")
STATUSES: Final = ("True", "False")
MAX_ROWS: Final = 100
MAX_FOR_SECONDS: Final = 86_400
MAX_CODE: Final = 128  # characters
TYPE: Final = re.compile(r"[A-Za-z0-9_./-]{1,80}")
REASON: Final = re.compile(r"[A-Za-z0-9_.-]{1,80}")
HARMLESS: Final = (Weight.INFO, Weight.MONITOR)
# Azure's Scheduled Events as AKS shows them. A freeze pauses the machine for seconds, and AKS itself does nothing then:
# https://learn.microsoft.com/azure/aks/node-auto-drain
_NOTICE: Final = "VMEventScheduled"
_PAUSE: Final = re.compile(r"\bfreeze", re.IGNORECASE)
_STOP: Final = re.compile(r"\b(?:reboot|redeploy|preempt|terminate)", re.IGNORECASE)
_KEYS: Final = ("type", "status", "reason", "for", "severity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as the cluster shows it. ``stands``: since when it has had its status, whatever its reason was.

    ``heartbeat``: when its writer last said so. Conditions that differ only in it are equal.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    stands: datetime | None = None
    heartbeat: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRule:
    """A condition that is a fault once it has lasted for ``lasts``. ``reason`` "": any. ``is_own``: not of a preset."""

    type: str
    status: str = "True"
    reason: str = ""
    lasts: timedelta = timedelta()
    severity: str = "warning"
    is_own: bool = False


def _rows(*names: str, severity: str = "warning", status: str = "True") -> tuple[ConditionRule, ...]:
    return tuple(ConditionRule(type=name, severity=severity, status=status) for name in names)


# Where the names are from:
# node-problem-detector: github.com/kubernetes/node-problem-detector, config/*.json
# gpu-operator: AMD's, github.com/ROCm/gpu-operator, docs/npd/node-problem-detector.md and
#     docs/autoremediation/auto-remediation.md. NVIDIA's operator writes no conditions.
# eks: github.com/aws/eks-node-monitoring-agent, README.md
# aks: github.com/MicrosoftDocs/azure-aks-docs, articles/aks/node-problem-detector.md and gpu-health-monitoring.md, and
#     github.com/Azure/AgentBaker, e2e/validators.go. One writes XIDErrors, the other XIDError.
# gke: github.com/GoogleCloudPlatform/container-engine-accelerators, pkg/gpu/nvidia/health_check/health_checker.go
# oke: github.com/oracle-quickstart/oci-hpc-oke, terraform/files/node-problem-detector/values*.yaml. Its checks of
#     settings (CpuProfile, OcaVersion) are left out.
PRESETS: Final[Mapping[str, tuple[ConditionRule, ...]]] = MappingProxyType(
    {
        "node-problem-detector": _rows(
            *("KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentKubeletRestart"),
            *("FrequentContainerdRestart", "FrequentDockerRestart", "FrequentUnregisterNetDevice"),
            *("XfsShutdown", "CperHardwareErrorFatal", "DiskBadBlock"),
            *("KubeletUnhealthy", "ContainerRuntimeUnhealthy"),
        ),
        "gpu-operator": _rows("AMDGPUProblem", "AMDGPUXgmi", severity="degraded"),
        "eks": _rows(
            *("AcceleratedHardwareReady", "ContainerRuntimeReady", "KernelReady", "NetworkingReady", "StorageReady"),
            severity="degraded",
            status="False",
        ),
        "aks": _rows(
            *("KubeletProblem", "ContainerRuntimeProblem", "FilesystemCorruptionProblem", "VMEventScheduled"),
            *("IBLinkFlapping", "UnhealthyNvidiaDevicePlugin", "UnhealthyNvidiaDCGMServices"),
            *("GPUMissing", "XIDErrors", "XIDError", "NVLinkStatusInactive", "GPUClockThrottling"),
        ),
        "gke": _rows("XidCriticalError", severity="degraded"),
        "oke": (
            *_rows(
                *("GpuCount", "GpuEcc", "GpuRowRemap", "GpuBus", "GpuPcie", "GpuFabricMgr", "GpuBadPages", "GpuXid"),
                *("NvlinkSpeed", "DcgmiHealth", "Rocminfo", "RdmaLink", "RdmaLinkFlapping", "RdmaVfCounters"),
                "NodeHasPcieErrors",
                severity="degraded",
            ),
            *_rows("RdmaWpaAuth", "RdmaRttcc", "RdmaVfRoutes", "GpuImex", "IpAddress"),
        ),
    }
)
DEFAULT_PRESETS: Final = tuple(PRESETS)


def table_of(value: object) -> list[dict[str, Any]]:
    """A table in its canonical form. Raises Unreadable with the path of the field."""
    if not isinstance(value, list) or len(value) > MAX_ROWS:
        raise Unreadable("", reasons.of("condition_table", most=MAX_ROWS))
    return [_entry(entry, str(index)) for index, entry in enumerate(value)]


def _entry(entry: object, path: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise Unreadable(path, reasons.of("condition_row"))
    if unknown := [key for key in entry if key not in _KEYS]:
        problem = reasons.of("condition_key_unknown", key=short_text(unknown[0]), known=", ".join(_KEYS))
        raise Unreadable(f"{path}/{short_text(unknown[0])}", problem)
    kind, status, reason = (
        entry.get(key, default) for key, default in (("type", ""), ("status", "True"), ("reason", ""))
    )
    if not isinstance(kind, str) or not TYPE.fullmatch(kind) or kind in NOT_FAULTS or kind.startswith(OWN_PREFIXES):
        raise Unreadable(f"{path}/type", reasons.of("condition_type"))
    if status not in STATUSES:
        raise Unreadable(f"{path}/status", reasons.of("condition_status"))
    if not isinstance(reason, str) or (reason and not REASON.fullmatch(reason)):
        raise Unreadable(f"{path}/reason", reasons.of("condition_reason"))
    seconds = entry.get("for", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 <= seconds <= MAX_FOR_SECONDS:
        raise Unreadable(f"{path}/for", reasons.of("source_setting_number", least=0, most=MAX_FOR_SECONDS))
    severity = entry.get("severity", "warning")
    if severity not in ("info", "warning", "degraded", "fatal"):
        raise Unreadable(f"{path}/severity", reasons.of("condition_severity"))
    return {"type": kind, "status": status, "reason": reason, "for": seconds, "severity": severity}


def rows_of(settings: Mapping[str, Any]) -> tuple[ConditionRule, ...]:
    """The rows of a source's settings: its own table first, then its presets (default: all)."""
    own = tuple(
        ConditionRule(
            type=entry["type"],
            status=entry["status"],
            reason=entry["reason"],
            lasts=timedelta(seconds=entry["for"]),
            severity=entry["severity"],
            is_own=True,
        )
        for entry in settings.get("table", ())
    )
    presets = settings.get("presets", DEFAULT_PRESETS)
    return (*own, *(row for name in presets for row in PRESETS.get(name, ())))


def read(
    node: str, found: Sequence[Condition], rows: Iterable[ConditionRule], *, now: datetime
) -> tuple[Observation, ...]:
    """The observations in the conditions of a node: a fault for each that a row names, a pass for each that it clears.

    A condition that has not lasted long enough says nothing yet.
    """
    wanted: dict[str, list[ConditionRule]] = {}
    for row in rows:
        wanted.setdefault(row.type, []).append(row)
    said = (_said(node, one, wanted[one.type], now=now) for one in found if one.type in wanted)
    return tuple(itertools.chain.from_iterable(said))


def standing(
    node: str, found: Sequence[Condition], rows: Iterable[ConditionRule], *, now: datetime
) -> tuple[Observation, ...]:
    """The faults in conditions as states that stand now, and since their own time at the earliest.

    Those of an Xid are left out, because an Xid is a moment: its writer may look back over a reboot. So are those that
    weigh nothing.
    """
    return tuple(
        replace(one, seen_at=now, earliest=one.seen_at)
        for one in read(node, found, rows, now=now)
        if not one.healthy and one.seen_at is not None and one.alias is None and one.weight not in HARMLESS
    )


def removed(node: str, code: str, *, boot_id: str, now: datetime) -> Observation:
    """The pass of a condition that is not shown any more since the node's boot ``boot_id``; ``code``: of its fault."""
    check = code.partition("/")[0]
    return Observation(
        path=check.partition("=")[0],
        key=f"{node} {check} removed {boot_id}",
        node=node,
        kind="condition",
        code=check,
        check=check,
        healthy=True,
        seen_at=now,
    )


def is_waiting(found: Sequence[Condition], rows: Iterable[ConditionRule], *, now: datetime) -> bool:
    """Returns whether a condition of the node will be a fault if it lasts."""
    return any(_matches(one, row) and _is_young(one, row, now) for row in rows for one in found)


def _matches(condition: Condition, row: ConditionRule) -> bool:
    stated = condition.type, condition.status
    return stated == (row.type, row.status) and row.reason in ("", condition.reason)


def _is_young(condition: Condition, row: ConditionRule, now: datetime) -> bool:
    began = condition.stands or condition.since
    return began is not None and now - min(began, now) < row.lasts  # the clock of a node may be ahead


def _said(node: str, condition: Condition, rows: Sequence[ConditionRule], *, now: datetime) -> list[Observation]:
    if condition.status not in STATUSES or condition.type.startswith(OWN_PREFIXES):
        return []  # Unknown is never proof
    match = next((row for row in rows if _matches(condition, row)), None)
    if match is not None and _is_young(condition, match, now):
        return []
    reason = condition.reason if REASON.fullmatch(condition.reason) else ""
    stated = f"{condition.type}={condition.status}"
    code = f"{stated}/{reason}" if reason else stated
    said = Observation(
        path=condition.type,
        key=f"{node} {stated}/{reason} {condition.since}{' pause' if _is_pause(condition) else ''}",
        node=node,
        kind="condition",
        code=code[:MAX_CODE],
        check=stated if match is not None else f"{condition.type}={_other(condition.status)}",
        message=condition.message[:1024].replace("\0", "\N{REPLACEMENT CHARACTER}") or reason or stated,
        severity="info",
        weight=_weight(condition, match),
        healthy=match is None,
        seen_at=condition.since if match is not None else now,  # it is over now, whatever time its writer sets
    )
    if match is None:
        return [said]
    xids = sorted(_xids_of(condition))
    found = [_of_xid(said, one, condition, is_only=len(xids) == 1) for one in xids] or [said]
    return [one if one.weight in HARMLESS else replace(one, severity=match.severity) for one in found]


def _of_xid(said: Observation, xid: int, condition: Condition, *, is_only: bool) -> Observation:
    """The condition as a report of one of the Xids that it names.

    GKE adds an Xid to the reason of a condition that stands already, and others write it into the message: the time
    stays, so the Xid is a part of the identity. Where there are several, each has a code of its own, by which it is an
    incident of its own. Of one alone the code is that of the condition, because rules name it.
    """
    return replace(
        said,
        key=f"{said.key} xid {xid}",
        code=said.code if is_only else f"{str(said.code)[: MAX_CODE - 11]}/{xid}",
        weight=of_xids({xid}, condition.message),
        alias=xid,
    )


def _xids_of(condition: Condition) -> Collection[int]:
    """The Xids that the condition is about: in its reason (``{"79":true}`` on GKE), else in its message."""
    try:
        told = json.loads(condition.reason) if condition.reason.startswith("{") else {}
    except (ValueError, RecursionError):
        told = {}
    codes = {int(key) for key, value in told.items() if value is True and re.fullmatch(r"[0-9]{1,9}", key)}
    return codes or named_xids(condition.reason, condition.message)


def _weight(condition: Condition, match: ConditionRule | None) -> Weight:
    """The weight of a condition that names no Xid."""
    severity = match.severity if match is not None else "info"
    is_own = match is not None and match.is_own  # its operator has judged it
    if not is_own and _is_pause(condition):
        return Weight.INFO
    if not is_own and is_of_monitor(condition.type, "" if severity == "fatal" else condition.message):
        return Weight.MONITOR
    return Weight.INFO if severity == "info" else Weight.NODE


def _is_pause(condition: Condition) -> bool:
    """Return whether the condition tells of a pause of the machine, and of nothing that ends its work."""
    told = f"{condition.reason} {condition.message}"
    return condition.type == _NOTICE and _PAUSE.search(told) is not None and _STOP.search(told) is None


def _other(status: str) -> str:
    """The status that a condition had while it was a fault."""
    return "False" if status == "True" else "True"
