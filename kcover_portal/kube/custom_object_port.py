"""The part of the port for custom resources, and for kinds that not every API server has."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from kcover_portal.kube.values import CustomKind, CustomObject, Node, StatedCondition


class CustomObjects(Protocol):
    """Objects of kinds that the server may lack. Errors are those of ``port.Cluster``."""

    def serves(self, kind: CustomKind) -> bool:
        """Returns whether the server has this kind in this version."""

    def custom_objects(self, kind: CustomKind, *, node: str = "", namespace: str = "") -> list[CustomObject]:
        """Returns the objects of a namespace, "" for all, or those whose spec names the node; none if not installed."""

    def create_object(
        self, kind: CustomKind, name: str, spec: Mapping[str, Any], *, owner: Node | None = None
    ) -> CustomObject:
        """Creates a cluster-scoped object unless one of that name exists, and returns it.

        ``owner``: Kubernetes deletes the object with that node. Raises ``NotFound`` if the kind is not installed.
        """

    def delete_object(self, kind: CustomKind, namespace: str, name: str, *, uid: str) -> None:
        """Requests the deletion of the object with this uid; its controller may take time to carry it out.

        Raises ``Conflict`` if another object has the name now. An object that does not exist is no error.
        """

    def state_condition(
        self, kind: CustomKind, name: str, *, version: str, condition: StatedCondition, at: datetime
    ) -> None:
        """Makes ``condition`` the only one in the status of a cluster-scoped object that has this version.

        ``at``: since when it holds. Raises ``NotFound``, ``Conflict`` if it was changed or another one has the name.
        """
