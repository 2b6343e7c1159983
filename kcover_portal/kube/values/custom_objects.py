"""Objects of the few custom resources that the portal reads besides training jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomKind:
    """A custom resource."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        """Group and version, as in a manifest."""
        return f"{self.group}/{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedCondition:
    """An entry of an object's ``status.conditions``."""

    type: str
    status: str
    reason: str
    message: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomObject:
    """An object of a ``CustomKind``. ``generation`` counts the changes of its spec."""

    kind: CustomKind
    name: str
    uid: str
    namespace: str = ""
    generation: int = 0
    created_at: datetime | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[StatedCondition, ...] = ()


# kcover's, from chart 0.11 on.
PREFLIGHT_REPORT: Final = CustomKind(
    kind="PreflightReport", group="kcover.io", version="v1alpha1", plural="preflightreports", namespaced=True
)
POLICY_KINDS: Final = tuple(
    CustomKind(kind=kind, group=group, version="v1", plural=plural)
    for group in ("rescue.ksyun.com", "kcover.io")
    for kind, plural in (("RescuePolicy", "rescuepolicies"), ("WarmStandbyPolicy", "warmstandbypolicies"))
)
