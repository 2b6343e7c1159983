from django.apps import AppConfig


class PartsConfig(AppConfig):
    name = "kcover_portal.parts"
