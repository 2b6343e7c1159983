from django.apps import AppConfig


class RescueConfig(AppConfig):
    name = "kcover_portal.rescue"
