from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "kcover_portal.incidents"
