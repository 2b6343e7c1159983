from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "kcover_portal.console"
