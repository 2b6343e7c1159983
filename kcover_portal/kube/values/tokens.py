"""Identities of tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIdentity:
    """A token's identity. ``service_account`` is "namespace/name"; node and pod are set if the token is bound to them.

    Before Kubernetes 1.30 a pod's token names only its pod, and ``node_name`` is None.
    """

    username: str
    groups: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    node_name: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    service_account: str | None = None
