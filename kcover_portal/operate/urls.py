"""URLs for probes and Prometheus. They need no sign-in and expose no secrets."""

from django.urls import path

from kcover_portal.operate import views

app_name = "operate"
urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("metrics", views.metrics, name="metrics"),
]
