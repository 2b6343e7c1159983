"""Token reviews."""

from collections.abc import Sequence
from typing import Final

from kcover_portal.kube import values
from kcover_portal.kube.wire import base

SERVICE_ACCOUNT_USER: Final = "system:serviceaccount:"


class UserInfo(base.Struct, frozen=True):
    username: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class ReviewStatus(base.Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo | None = None
    audiences: list[str] | None = None


class TokenReview(base.Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()

    def value(self, *, audiences: Sequence[str]) -> values.TokenIdentity | None:
        """Returns the identity, or None. If the response has no audiences, the server checked only its own."""
        status, user = self.status, self.status.user
        if not status.authenticated or user is None:
            return None
        if audiences and not set(audiences) & set(status.audiences or ()):
            return None
        extra = user.extra or {}

        def bound_to(key: str) -> str | None:
            return next(iter(extra.get(f"authentication.kubernetes.io/{key}") or ()), None)

        account = user.username.removeprefix(SERVICE_ACCOUNT_USER)
        return values.TokenIdentity(
            username=user.username,
            groups=tuple(user.groups or ()),
            audiences=tuple(status.audiences or ()),
            node_name=bound_to("node-name"),
            pod_name=bound_to("pod-name"),
            pod_uid=bound_to("pod-uid"),
            service_account=account.replace(":", "/", 1) if account != user.username else None,
        )
