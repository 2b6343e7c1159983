"""The identity behind a token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIdentity:
    """Whom a token belongs to. ``service_account`` is "namespace/name"; node and pod if it is bound to them.

    Before Kubernetes 1.30 a pod's token names its pod only, and ``node_name`` is None.
    """

    username: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    node_name: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    service_account: str | None = None
