"""The verb for token reviews."""

from collections.abc import Sequence

from kcover_portal.kube import values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import tokens as wire


class Tokens(list_watch.Verbs):
    """The port's verb for tokens."""

    def review_token(self, token: str, *, audiences: Sequence[str]) -> values.TokenIdentity | None:
        answer = self._connection.request(
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            wire.TokenReview,
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token, "audiences": list(audiences)},
            },
            harmless=True,
        )
        return answer.value(audiences=audiences)
