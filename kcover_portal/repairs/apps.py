from django.apps import AppConfig


class RepairsConfig(AppConfig):
    name = "kcover_portal.repairs"
