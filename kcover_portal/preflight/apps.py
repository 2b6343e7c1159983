from django.apps import AppConfig


class PreflightConfig(AppConfig):
    name = "kcover_portal.preflight"
