"""Addresses for probes and Prometheus; they tell no secrets and ask for no sign-in."""

from django.urls import path

from kcover_portal.operate import views

app_name = "operate"
urlpatterns = [
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("metrics", views.metrics, name="metrics"),
]
