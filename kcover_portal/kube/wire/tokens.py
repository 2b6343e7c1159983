"""Token reviews."""

from collections.abc import Sequence
from typing import Final

from kcover_portal.kube import values
from kcover_portal.kube.wire import base

SERVICE_ACCOUNT_USER: Final = "system:serviceaccount:"


class UserInfo(base.Struct, frozen=True):
    """authenticationv1.UserInfo."""

    username: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class ReviewStatus(base.Struct, frozen=True):
    """TokenReviewStatus."""

    authenticated: bool = False
    user: UserInfo | None = None
    audiences: list[str] | None = None


class TokenReview(base.Struct, frozen=True):
    """A TokenReview's answer."""

    status: ReviewStatus = ReviewStatus()

    def value(self, *, audiences: Sequence[str]) -> values.TokenIdentity | None:
        """The identity, or None. A server that names no audience answered for its own only, which does not count."""
        status, user = self.status, self.status.user
        if not status.authenticated or user is None:
            return None
        if audiences and not set(audiences) & set(status.audiences or ()):
            return None
        extra = user.extra or {}

        def one(key: str) -> str | None:
            return next(iter(extra.get(f"authentication.kubernetes.io/{key}") or ()), None)

        account = user.username.removeprefix(SERVICE_ACCOUNT_USER)
        return values.TokenIdentity(
            username=user.username,
            groups=tuple(user.groups or ()),
            audiences=tuple(status.audiences or ()),
            node_name=one("node-name"),
            pod_name=one("pod-name"),
            pod_uid=one("pod-uid"),
            service_account=account.replace(":", "/", 1) if account != user.username else None,
        )
