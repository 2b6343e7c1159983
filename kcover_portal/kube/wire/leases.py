"""Leases."""

import msgspec

from kcover_portal.kube.wire.base import Meta, Struct


class LeaseObject(Struct, frozen=True):
    """coordination.k8s.io/v1 Lease; of its spec nothing is read."""

    metadata: Meta = msgspec.field(default_factory=Meta)
