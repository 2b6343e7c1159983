"""OpenAPI: every operation with the problems it may answer, and how programs sign in."""

from http import HTTPStatus
from typing import Any, Literal

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers

from kcover_portal.api import problems


class FieldProblem(serializers.Serializer[Any]):
    """What is wrong with one field or parameter."""

    field = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()


class Problem(serializers.Serializer[Any]):
    """RFC 9457."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    errors = FieldProblem(many=True, required=False)  # type: ignore[assignment]  # the field's name is RFC 9457's habit


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer tokens, as the portal's own authentication reads them."""

    target_class = "kcover_portal.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """The scheme's entry in the document."""
        return {"type": "http", "scheme": "bearer", "description": "Made by: manage.py token create --kind ..."}


class Schema(AutoSchema):
    """Adds the problem documents to what drf-spectacular finds."""

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
        found = [HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN]
        if "{" in self.path or self.method == "POST":
            found.append(HTTPStatus.NOT_FOUND)
        if self.method in ("POST", "PUT", "PATCH"):
            found += [HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY]
            found += [HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE]
        if any(getattr(one, "name", "") == "If-Match" for one in self.get_override_parameters()):
            found.append(HTTPStatus.PRECONDITION_FAILED)
        return found
