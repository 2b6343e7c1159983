"""The portal's URLs. ``/ws/`` and ``/api/v1/agent/`` are served outside Django's URLs (see ``asgi``)."""

from django.urls import include, path

urlpatterns = [
    path("", include("kcover_portal.operate.urls")),
    path("api/", include("kcover_portal.api.urls")),
    path("", include("kcover_portal.console.urls")),
]
