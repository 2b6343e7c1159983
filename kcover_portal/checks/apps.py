from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "kcover_portal.checks"
