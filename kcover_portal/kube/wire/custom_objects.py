"""Objects of custom resources. A spec is what its author wrote, so it stays plain."""

from typing import Any

from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class StatedCondition(base.Struct, frozen=True):
    """metav1.Condition, as far as the portal writes it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class StatusWithConditions(base.Struct, frozen=True):
    """A status of which only the conditions are read."""

    conditions: list[StatedCondition] | None = None


class CustomMeta(base.Meta, frozen=True):
    """metav1.ObjectMeta with the generation."""

    generation: int = 0


class CustomResource(base.AnyObject, frozen=True):
    metadata: CustomMeta = CustomMeta()
    spec: dict[str, Any] | None = None
    status: StatusWithConditions | None = None

    def value(self, kind: values.CustomKind) -> values.CustomObject:
        stated = (self.status and self.status.conditions) or ()
        return values.CustomObject(
            kind=kind,
            name=self.metadata.name,
            namespace=self.metadata.namespace,
            uid=self.metadata.uid,
            generation=self.metadata.generation,
            created_at=self.metadata.creation_timestamp,
            spec=self.spec or {},
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
        )
