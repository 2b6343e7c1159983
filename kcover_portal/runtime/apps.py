from django.apps import AppConfig


class RuntimeConfig(AppConfig):
    name = "kcover_portal.runtime"
