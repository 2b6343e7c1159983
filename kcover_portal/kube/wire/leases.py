"""Leases."""

import msgspec

from kcover_portal.kube import values
from kcover_portal.kube.wire.base import Meta, Struct


class LeaseSpec(Struct, frozen=True):
    """What leader election reads. Its times are those of another machine's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class LeaseObject(Struct, frozen=True):
    """coordination.k8s.io/v1 Lease."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: LeaseSpec | None = None

    def holder(self) -> values.LeaseHolder:
        """Returns the holder."""
        spec = self.spec or LeaseSpec()
        return values.LeaseHolder(
            holder=spec.holder_identity or "",
            seconds=spec.lease_duration_seconds or 0,
            transitions=spec.lease_transitions or 0,
            version=self.metadata.resource_version,
        )
