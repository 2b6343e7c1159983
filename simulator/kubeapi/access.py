"""Authentication, authorization, and the tokens that TokenReviews are asked about.

Authorization is as coarse as a simulator needs: an identity may use all verbs, or a set of them, on everything.
"""

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from simulator.kubeapi import errors, resources, store

Object = dict[str, Any]

API_AUDIENCE = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user. ``verbs`` None means all verbs."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    verbs: frozenset[str] | None = None

    def may(self, verb: str) -> bool:
        return self.verbs is None or verb in self.verbs


ADMIN = Identity(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
READER = Identity(name="reader", verbs=frozenset({"get", "list", "watch"}))
ANONYMOUS = Identity(name="system:anonymous", groups=("system:unauthenticated",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Issued:
    """A service account's token. A token bound to a pod becomes invalid with the pod."""

    identity: Identity
    audiences: tuple[str, ...]
    expires_at: datetime
    namespace: str
    account: str
    pod: tuple[str, str] | None  # name, uid


class Access:
    """The tokens of one API server. ``tokens`` are fixed; those of service accounts are issued. ``anonymous`` admits
    all callers."""

    def __init__(self, objects: store.Store, *, tokens: Mapping[str, Identity], anonymous: bool = False) -> None:
        self._store = objects
        self._tokens = dict(tokens)
        self._issued: dict[str, _Issued] = {}
        self._anonymous = anonymous

    def authenticate(self, header: str) -> Identity:
        """The identity behind an ``Authorization`` header. Raises ``ApiError`` 401."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() == "bearer" and token:
            if identity := self._tokens.get(token.strip()):
                return identity
            issued = self._issued.get(token.strip())
            if issued and API_AUDIENCE in issued.audiences and self._alive(issued):
                return issued.identity
        elif not header and self._anonymous:
            return ANONYMOUS
        raise errors.unauthorized()

    def authorize(
        self, who: Identity, verb: str, *, group: str, plural: str, name: str = "", namespace: str | None = None
    ) -> None:
        """Raises ``ApiError`` 403 if the identity lacks the permission."""
        if who.may(verb):
            return
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        why = f'User "{who.name}" cannot {verb} resource "{plural}" in API group "{group}" {scope}'
        raise errors.forbidden(group, plural.partition("/")[0], name, why)

    def issue(
        self,
        namespace: str,
        account: str,
        *,
        audiences: Sequence[str] = (API_AUDIENCE,),
        lifetime: timedelta = timedelta(hours=1),
        pod: Object | None = None,
    ) -> str:
        """A token for a service account, bound to ``pod`` if given (its review then names pod and node)."""
        expires_at = self._store.now() + lifetime
        extra: dict[str, Sequence[str]] = {}
        claims: Object = {"namespace": namespace, "serviceaccount": {"name": account}}
        bound = None
        if pod:
            metadata, node = pod["metadata"], pod["spec"].get("nodeName", "")
            bound = (metadata["name"], metadata["uid"])
            extra["authentication.kubernetes.io/pod-name"] = [metadata["name"]]
            extra["authentication.kubernetes.io/pod-uid"] = [metadata["uid"]]
            claims["pod"] = {"name": metadata["name"], "uid": metadata["uid"]}
            if node:
                extra["authentication.kubernetes.io/node-name"] = [node]
                claims["node"] = {"name": node}
                if found := self._store.find("Node", "", node):
                    extra["authentication.kubernetes.io/node-uid"] = [found["metadata"]["uid"]]
        name = f"system:serviceaccount:{namespace}:{account}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        owner = self._store.find("ServiceAccount", namespace, account)
        identity = Identity(
            name=name,
            groups=groups,
            uid=owner["metadata"]["uid"] if owner else "",
            extra=extra,
            verbs=frozenset(),
        )
        token = _token(
            {"sub": name, "aud": list(audiences), "exp": int(expires_at.timestamp()), "kubernetes.io": claims}
        )
        self._issued[token] = _Issued(
            identity=identity,
            audiences=tuple(audiences),
            expires_at=expires_at,
            namespace=namespace,
            account=account,
            pod=bound,
        )
        return token

    def token_request(self, body: Object, namespace: str, account: str) -> Object:
        """The response to a TokenRequest. Raises ``ApiError`` if the account or pod is missing or they do not match."""
        spec = body.get("spec") or {}
        self._store.get("ServiceAccount", namespace, account)
        reference = spec.get("boundObjectRef")
        pod = self._bound(reference, namespace, account) if reference else None
        lifetime = timedelta(seconds=spec.get("expirationSeconds") or 3600)
        audiences = spec.get("audiences") or [API_AUDIENCE]
        token = self.issue(namespace, account, audiences=audiences, lifetime=lifetime, pod=pod)
        until = store.timestamp(self._store.now() + lifetime)
        return {**body, "status": {"token": token, "expirationTimestamp": until}}

    def token_review(self, body: Object) -> Object:
        """The response to a TokenReview: the user, and which of the requested audiences the token is for."""
        spec = body.get("spec") or {}
        token, audiences = spec.get("token", ""), tuple(spec.get("audiences") or (API_AUDIENCE,))
        status: Object = {"authenticated": False}
        issued = self._issued.get(token)
        if identity := self._tokens.get(token):
            status = {"authenticated": True, "user": _user(identity), "audiences": [API_AUDIENCE]}
            if API_AUDIENCE not in audiences:
                status = {"authenticated": False}
        elif issued and self._alive(issued):
            shared = [audience for audience in audiences if audience in issued.audiences]
            if shared:
                status = {"authenticated": True, "user": _user(issued.identity), "audiences": shared}
            else:
                text = f"token audiences {list(issued.audiences)} is invalid for the target audiences {list(audiences)}"
                status["error"] = f"[invalid bearer token, {text}]"
        else:
            status["error"] = "[invalid bearer token, token lookup failed]"
        return {**body, "status": status}

    def access_review(self, body: Object, *, who: Identity | None) -> Object:
        """The response to a SubjectAccessReview, or with ``who`` to a SelfSubjectAccessReview."""
        spec = body.get("spec") or {}
        if who is None:
            known = {identity.name: identity for identity in self._tokens.values()}
            known |= {issued.identity.name: issued.identity for issued in self._issued.values()}
            who = known.get(spec.get("user", ""), Identity(name="", verbs=frozenset()))
        about = spec.get("resourceAttributes") or spec.get("nonResourceAttributes") or {}
        plural = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
        try:
            self.authorize(
                who,
                about.get("verb", ""),
                group=about.get("group", ""),
                plural=plural,
                name=about.get("name", ""),
                namespace=about.get("namespace"),
            )
        except errors.ApiError as refusal:
            return {**body, "status": {"allowed": False, "reason": str(refusal)}}
        return {**body, "status": {"allowed": True}}

    def _bound(self, reference: Object, namespace: str, account: str) -> Object:
        """The pod to which a token is bound. Real servers can bind to secrets and nodes too, which nothing here
        needs."""
        if reference.get("kind") != "Pod":
            raise errors.bad_request(f"cannot bind token to object of type {reference.get('kind')}")
        name, uid = reference.get("name", ""), reference.get("uid", "")
        pod = self._store.get(resources.PODS, namespace, name)
        if pod["spec"].get("serviceAccountName") != account:
            raise errors.bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        if uid and uid != pod["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict("", "Pod", name, why)
        return pod

    def _alive(self, issued: _Issued) -> bool:
        if self._store.now() >= issued.expires_at:
            return False
        if issued.pod is None:
            return True
        pod = self._store.find(resources.PODS, issued.namespace, issued.pod[0])
        return pod is not None and pod["metadata"]["uid"] == issued.pod[1]


def _user(identity: Identity) -> Object:
    user: Object = {"username": identity.name, "groups": list(identity.groups)}
    if identity.uid:
        user["uid"] = identity.uid
    if identity.extra:
        user["extra"] = {key: list(values) for key, values in identity.extra.items()}
    return user


def _token(claims: Object) -> str:
    """A token in the form of a JWT. Its signature is random: tokens are looked up here, not verified."""
    parts = [
        msgspec.json.encode({"alg": "RS256", "kid": "simulator"}),
        msgspec.json.encode(claims),
        secrets.token_bytes(32),
    ]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
