"""Policy texts over HTTP: YAML under several media types, or JSON that contains it; revisions as ETags."""

import re
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import parsers, serializers
from rest_framework.request import Request

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.api import body_parsers, http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import services
from kcover_portal.policies.services import yaml_reader

ETAG = re.compile(r'(?:W/)?"?([0-9]{1,9})"?')
IF_MATCH = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="the revision that was edited")
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="*: only if it does not exist"
)
REASON = OpenApiParameter("reason", str, description="the reason, if the body is YAML or empty")
KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)


class YamlParser(parsers.BaseParser):
    """A body that is the policy's text."""

    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> dict[str, Any]:
        """Returns the raw text. Raises TooLarge."""
        return {"text": body_parsers.whole(stream, parser_context, most=yaml_reader.MAX_BYTES)}


class TextYamlParser(YamlParser):
    """YAML under an older media type."""

    media_type = "text/yaml"


class OldYamlParser(YamlParser):
    """YAML under the media type from before its registration."""

    media_type = "application/x-yaml"


class PlainParser(YamlParser):
    """YAML from clients that send plain text."""

    media_type = "text/plain"


class FormParser(YamlParser):
    """YAML under the media type that ``curl --data-binary`` and ``urllib`` send unless told otherwise."""

    media_type = "application/x-www-form-urlencoded"


class UntypedParser(YamlParser):
    """YAML without a media type."""

    media_type = ""


PARSERS = (
    body_parsers.StrictJsonParser,
    YamlParser,
    TextYamlParser,
    OldYamlParser,
    PlainParser,
    FormParser,
    UntypedParser,
)
REQUEST = {"application/yaml": OpenApiTypes.STR}


class TextBody(base.ActSerializer):
    """A policy text as JSON."""

    aliases: ClassVar = {"yaml": "text"}  # as in a try

    text = serializers.CharField(trim_whitespace=False, allow_blank=True)


class RollbackBody(base.ActSerializer):
    """The revision to roll back to, and the reason."""

    revision = serializers.IntegerField(min_value=1)
    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)


class InstallBody(base.ActSerializer):
    """A pack of policies, and the mode of each of its rules."""

    pack = serializers.CharField(max_length=60)
    mode = serializers.CharField(max_length=60, default=services.FIRST_MODE)


def text_of(request: Request) -> dict[str, Any]:
    """Returns the text and the reason of a JSON or YAML body.

    Raises Unprocessable for an empty body, TooLarge, FieldErrors or ValidationError.
    """
    if isinstance(request.data, dict) and isinstance(request.data.get("text"), bytes):
        text, reason = request.data["text"], reason_of(request)
    elif not request.data:
        text, reason = "", reason_of(request)
    else:
        body = base.body_of(request, TextBody)
        text, reason = body["text"], body["reason"] or reason_of(request)
        size = len(text.encode())
        if size > yaml_reader.MAX_BYTES:
            raise http_errors.TooLarge(reasons.of("text_too_large", bytes=size, limit=yaml_reader.MAX_BYTES))
    if not text.strip():
        raise http_errors.Unprocessable(reasons.of("body_empty", example='{"text": "..."}'))
    return {"text": text, "reason": reason}


def reason_of(request: Request) -> str:
    """Returns the query parameter ``reason``. Raises FieldError."""
    reason = str(request.query_params.get("reason", ""))
    if len(reason) > base.MAX_REASON_CHARACTERS:
        raise FieldError("reason", reasons.of("text_too_long", most=base.MAX_REASON_CHARACTERS))
    return reason


def author_of(request: Request) -> str:
    """Returns the caller's name in the audit log."""
    return accounts.actor(principal(request))


def expected(request: Request, *, exists: bool) -> int | None:
    """Returns the revision that must be active, from ``If-Match`` or ``If-None-Match``; None for any."""
    wanted = request.headers.get("If-Match")
    if request.headers.get("If-None-Match") is not None:
        if request.headers["If-None-Match"].strip() != "*":
            raise FieldError("If-None-Match", reasons.of("if_none_match_invalid"))
        return 0
    if wanted is None:
        return None
    if wanted.strip() == "*":
        if not exists:
            raise http_errors.PreconditionFailed(reasons.of("no_active_policy"))
        return None
    tag = ETAG.fullmatch(wanted.strip())
    if tag is None:
        raise http_errors.PreconditionFailed(reasons.of("etag_invalid", value=short_text(wanted)))
    return int(tag[1])
