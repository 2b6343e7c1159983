"""The page of the REST documentation: Swagger UI in the frame of the console."""

from django.contrib.auth.models import AnonymousUser
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerView
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts.models import User


class Docs(SpectacularSwaggerView):
    """Swagger UI. Its script is a static file, so the page needs no inline script."""

    template_name = "console/pages/api.html"
    http_method_names = ["get", "head"]  # the template has no answer to OPTIONS

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Returns the page. Readers without a session see it without the navigation."""
        user = request.user if isinstance(request.user, User) else AnonymousUser()
        context = {
            "base": "console/base.html",
            "user": user,
            "schema_url": self._get_schema_url(request),  # type: ignore[no-untyped-call]
            "swagger_css": self._swagger_ui_resource("swagger-ui.css"),  # type: ignore[no-untyped-call]
            "swagger_bundle": self._swagger_ui_resource("swagger-ui-bundle.js"),  # type: ignore[no-untyped-call]
        }
        return Response(context, template_name=self.template_name)
