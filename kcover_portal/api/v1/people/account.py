"""The account of the person who calls."""

from django.contrib.auth import update_session_auth_hash
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import services
from kcover_portal.accounts.models import User
from kcover_portal.accounts.services import passkeys, second_factors, step_up
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base

MAX_PASSWORD = 200  # characters, as on the page


class PasswordBody(base.StrictSerializer):
    """The old password and the new one."""

    old_password = serializers.CharField(max_length=MAX_PASSWORD, trim_whitespace=False, write_only=True)
    new_password = serializers.CharField(max_length=MAX_PASSWORD, trim_whitespace=False, write_only=True)


class StepUpBody(base.StrictSerializer):
    """A code of the person's authenticator app, or a recovery code."""

    code = serializers.CharField(max_length=40, write_only=True)


class Password(base.ActionView):
    """The password of the person who calls."""

    @extend_schema(operation_id="account_password", request=PasswordBody, responses={204: None})
    def post(self, request: Request) -> Response:
        """Changes the password and ends the person's other sessions.

        There is no idempotency key, because no hash of a password must be stored with it. 429 after several wrong
        passwords.
        """
        base.known_only(request)
        who = principal(request)
        if not isinstance(who, User):
            raise http_errors.Forbidden(reasons.of("password_of_person"))
        body = base.body_of(request, PasswordBody)
        services.change_own_password(
            who,
            old=body["old_password"],
            new=body["new_password"],
            address=services.client_address(request),
            now=timezone.now(),
            keep_session=request.session.session_key or "",
        )
        update_session_auth_hash(request, who)
        return Response(status=204)


class StepUp(base.ActionView):
    """A fresh second factor, for the actions that answer 403 with the code step_up_required."""

    @extend_schema(operation_id="account_step_up", request=StepUpBody, responses={204: None})
    def post(self, request: Request) -> Response:
        """Confirms with a code; the confirmation holds for ten minutes. 422 for a wrong code, 429 after several."""
        base.known_only(request)
        who = principal(request)
        if not isinstance(who, User):
            raise http_errors.Forbidden(reasons.of("factor_of_person"))
        body = base.body_of(request, StepUpBody)
        step_up.confirm(
            who,
            request.session,
            second_factors.SubmittedFactor(code=body["code"]),
            site=passkeys.site_of(request),
            address=services.client_address(request),
            now=timezone.now(),
        )
        return Response(status=204)
