from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "kcover_portal.fleet"
