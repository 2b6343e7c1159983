from django.apps import AppConfig


class NeedsConfig(AppConfig):
    name = "kcover_portal.needs"
