"""Every address of the portal, app by app. ``/ws/`` and ``/api/v1/agent/`` are answered before Django (asgi.py)."""

from django.urls import include, path

urlpatterns = [
    path("", include("kcover_portal.operate.urls")),
    path("api/", include("kcover_portal.api.urls")),
    path("", include("kcover_portal.console.urls")),
]
