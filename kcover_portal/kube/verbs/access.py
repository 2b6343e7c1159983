"""The verb for reviews of the account's own rights."""

from typing import Final

from kcover_portal.kube import values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import access as wire

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Access(list_watch.Verbs):
    """The port's verb for rights."""

    def is_allowed(self, right: values.Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        answer = self._connection.request(
            "POST",
            REVIEWS,
            wire.AccessReview,
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {**attributes, "namespace": right.namespace}},
            },
            harmless=True,
        )
        return answer.status.allowed
