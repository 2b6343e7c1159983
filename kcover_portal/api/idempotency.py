"""``Idempotency-Key``: a POST with a key is executed once, however often it is sent.

The key is stored in the transaction of the action, so a crash leaves both or neither. A refused request stores no key
and can be repeated with it; only its entry in the audit log stays.

A stored answer is given only while the caller still holds every right that the first request was checked for.
"""

import hashlib
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.models import Answered
from kcover_portal.api.permissions import require_again, rights_of
from kcover_portal.lib.errors import FieldError
from kcover_portal.rescue import services as rescue
from kcover_portal.runtime.services import retention

HEADER = "Idempotency-Key"
MAX_KEY_CHARACTERS = 200

View = Callable[..., Response]


def once(view: View) -> View:
    """Decorates a view method to return the first response again for a repeated key."""

    @wraps(view)
    def guarded(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = key_of(request)
        if key is None:
            return view(self, request, *args, **kwargs)
        claim = {"actor": _caller(request), "key": key}
        digest = _digest(request)
        earlier = Answered.objects.filter(**claim).first()
        if earlier is None:
            try:
                with transaction.atomic():
                    answer = _first(view, self, request, args, kwargs, claim=claim, digest=digest)
                if isinstance(answer, rescue.RescueRefused):
                    raise answer
                return answer
            except IntegrityError:
                earlier = Answered.objects.filter(**claim).first()
                if earlier is None:
                    raise
        if earlier.request != digest:
            raise http_errors.Unprocessable(reasons.of("idempotency_key_reused", header=HEADER, key=key))
        require_again(request, earlier.rights)
        return Response(earlier.body, status=earlier.status)

    return guarded


def key_of(request: Request) -> str | None:
    """Returns the key of the request, None without one. Raises FieldError for an empty or too long one."""
    key = request.headers.get(HEADER)
    if key is not None and (not key.strip() or len(key) > MAX_KEY_CHARACTERS):
        raise FieldError(HEADER, reasons.of("idempotency_key_length", most=MAX_KEY_CHARACTERS))
    return key


def short(request: Request, act: str, key: str) -> str:
    """Returns a text of 68 characters that stands for the caller, the act and the key, for rows that keep keys."""
    return "api " + hashlib.sha256(f"{_caller(request)}\n{act}\n{key}".encode()).hexdigest()


def _caller(request: Request) -> str:
    """The actor with its id: the names of two tokens can be equal, and a name can be given to another person."""
    who = principal(request)
    return f"{accounts.actor(who)[:180]} #{who.pk}"


def _first(
    view: View,
    self: Any,
    request: Request,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    claim: dict[str, str],
    digest: str,
) -> Response | rescue.RescueRefused:
    """Returns the view's response. A refusal is returned, not raised, so that its audit log entry is committed."""
    now = timezone.now()
    Answered.objects.filter(at__lt=retention.before(Answered, now=now)).delete()
    row = Answered.objects.create(**claim, request=digest, status=0, body={}, at=now)
    try:
        response = view(self, request, *args, **kwargs)
    except rescue.RescueRefused as refusal:
        row.delete()
        return refusal
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        row.delete()  # a corrected request can be sent with the same key
        return response
    rights = rights_of(request)
    Answered.objects.filter(pk=row.pk).update(status=response.status_code, body=response.data, rights=rights)
    return response


def _digest(request: Request) -> str:
    content = f"{request.method} {request.get_full_path()}\n".encode() + repr(request.data).encode()
    return hashlib.sha256(content).hexdigest()
