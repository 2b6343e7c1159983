"""Objects of custom resources. A spec is what its author wrote, so it stays as it is."""

import msgspec

from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class StatedCondition(base.Struct, frozen=True):
    """metav1.Condition, as far as the portal writes it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class NodeReference(base.Struct, frozen=True):
    name: str = ""


class ReportedNode(base.Struct, frozen=True):
    """NodeSystemInfo, as a Machine repeats it."""

    system_uuid: str = msgspec.field(name="systemUUID", default="")


class ReadStatus(base.Struct, frozen=True):
    """The fields of a status that the portal reads, of all kinds together."""

    conditions: list[StatedCondition] | None = None
    phase: str | None = None
    completion_time: str | None = None
    node_name: str | None = None
    node_ref: NodeReference | None = None
    node_info: ReportedNode | None = None
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class CustomMeta(base.Meta, frozen=True):
    """metav1.ObjectMeta with the generation."""

    generation: int = 0


class StatedSpec(base.Struct, frozen=True):
    """The field of a spec that the portal reads of every object."""

    provider_id: str = msgspec.field(name="providerID", default="")


class CustomResource(base.AnyObject, frozen=True):
    metadata: CustomMeta = CustomMeta()
    spec: msgspec.Raw = msgspec.Raw()
    status: ReadStatus | None = None

    def value(self, kind: values.CustomKind) -> values.CustomObject:
        status = self.status or ReadStatus()
        stated = status.conditions or ()
        return values.CustomObject(
            kind=kind,
            name=self.metadata.name,
            namespace=self.metadata.namespace,
            uid=self.metadata.uid,
            generation=self.metadata.generation,
            version=self.metadata.resource_version,
            created_at=self.metadata.creation_timestamp,
            raw_spec=bytes(self.spec) or b"{}",
            conditions=tuple(
                values.StatedCondition(
                    type=one.type,
                    status=one.status,
                    reason=one.reason,
                    message=one.message,
                    generation=one.observed_generation,
                )
                for one in stated
            ),
            deleting=self.metadata.deletion_timestamp is not None,
            managed=(self.metadata.labels or {}).get(values.MANAGED_BY) == values.COMPONENT,
            owner_uids=frozenset(owner.uid for owner in self.metadata.owner_references or () if owner.uid),
            owned=any(owner.controller for owner in self.metadata.owner_references or ()),
            phase=status.phase or "",
            completed=bool(status.completion_time),
            node=status.node_name or (status.node_ref.name if status.node_ref else ""),
            provider_id=status.provider_id or self._provider_id(),
            system_uuid=status.node_info.system_uuid if status.node_info else "",
        )

    def _provider_id(self) -> str:
        try:
            return _SPEC.decode(self.spec).provider_id if self.spec else ""
        except (msgspec.DecodeError, RecursionError):
            return ""


_SPEC = msgspec.json.Decoder(StatedSpec)
