"""Types shared by all kinds of objects: metadata, conditions, lists, watch lines and error statuses."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

GPU_RESOURCES: Final = ("nvidia.com/gpu", "metax-tech.com/gpu", "amd.com/gpu")
MAX_GPUS: Final = 65_535  # of one node, also where several pods share a GPU

T = TypeVar("T")


class Struct(msgspec.Struct, rename="camel", frozen=True):
    """Base class, camelCase on the wire. The API server may send null for any list or mapping, hence ``| None``."""


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Struct, frozen=True):
    """metav1.ObjectMeta; for lists metav1.ListMeta."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    continue_: str | None = msgspec.field(name="continue", default=None)
    remaining: int | None = msgspec.field(name="remainingItemCount", default=None)


class Condition(Struct, frozen=True):
    """A condition of a node, pod or job."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    reason: str = ""
    message: str = ""


class AnyObject(Struct, frozen=True):
    metadata: Meta = Meta()


class Page(Struct, Generic[T], frozen=True):
    metadata: Meta
    items: list[T] | None = None


class WatchLine(Struct, Generic[T], frozen=True):
    """One line of a watch. The object of an ERROR is a ``Status``."""

    type: str
    object: T


class Cause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class Details(Struct, frozen=True):
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(Struct, frozen=True):
    """metav1.Status: the body of an error response."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None

    @property
    def causes(self) -> Sequence[Cause]:
        return (self.details and self.details.causes) or ()

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait, if the server sent them."""
        return float(self.details.retry_after_seconds) or None if self.details else None


class Version(Struct, frozen=True):
    """The response of ``/version``."""

    git_version: str


class GroupVersion(Struct, frozen=True):
    version: str


class Group(Struct, frozen=True):
    """metav1.APIGroup: the versions of a group that a server supports."""

    versions: list[GroupVersion] | None = None


class Resource(Struct, frozen=True):
    name: str = ""


class Resources(Struct, frozen=True):
    """metav1.APIResourceList: the kinds of a group's version that a server has."""

    resources: list[Resource] | None = None


def gpus(amounts: Mapping[str, str | int] | None) -> int:
    """Returns the number of GPUs. Extended resources are whole numbers; other values are ignored."""
    return sum(_count(amounts, name) or 0 for name in GPU_RESOURCES)


def gpus_missing(capacity: Mapping[str, str | int] | None, allocatable: Mapping[str, str | int] | None) -> int:
    """Returns how many GPUs of the capacity pods cannot get; a number that is absent or absurd says nothing."""
    pairs = ((_count(capacity, name), _count(allocatable, name)) for name in GPU_RESOURCES)
    return sum(max(0, all_ - some) for all_, some in pairs if all_ is not None and some is not None)


def _count(amounts: Mapping[str, str | int] | None, name: str) -> int | None:
    """The number of a resource; None if there is none, or one that no node has (2**64 - 1)."""
    text = str((amounts or {}).get(name, ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= MAX_GPUS else None
