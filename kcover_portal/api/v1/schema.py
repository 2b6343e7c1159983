"""The OpenAPI schema: error responses of each operation, and authentication by token."""

from http import HTTPStatus
from typing import Any, Literal

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from kcover_portal.api import problems


class FieldProblem(serializers.Serializer[Any]):
    """A problem with one field or parameter."""

    field = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()
    params = serializers.DictField(required=False, help_text="of the sentence of the code")


class Problem(serializers.Serializer[Any]):
    """A problem document (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField(help_text="in the language of Accept-Language")
    params = serializers.DictField(required=False, help_text="of the sentence of the code")
    errors = FieldProblem(many=True, required=False)  # type: ignore[assignment]  # the name ``errors`` is usual with RFC 9457


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes bearer tokens."""

    target_class = "kcover_portal.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "Create one with: manage.py token create --kind ..."}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes sessions."""

    target_class = "kcover_portal.api.authentication.SessionAuthentication"
    name = "cookieAuth"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


class Schema(AutoSchema):
    """Adds problem documents to the responses."""

    def get_tags(self) -> list[str]:
        """Returns the part of the path after the version: the kind of record."""
        return [self.path.removeprefix("/api/v1/").partition("/")[0]]

    def _get_response_bodies(self, direction: Literal["request", "response"] = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        reference = self.resolve_serializer(Problem, "response").ref
        for status in self._problems():
            bodies.setdefault(
                str(int(status)),
                {"description": status.phrase, "content": {problems.MEDIA_TYPE: {"schema": reference}}},
            )
        return bodies

    def _problems(self) -> list[HTTPStatus]:
        statuses = [HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN]
        if "{" in self.path or self.method == "POST":
            statuses.append(HTTPStatus.NOT_FOUND)
        if self.method in ("POST", "PUT", "PATCH"):
            statuses += [HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY]
            statuses += [HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE]
        if any(getattr(parameter, "name", "") == "If-Match" for parameter in self.get_override_parameters()):
            statuses.append(HTTPStatus.PRECONDITION_FAILED)
        return statuses
