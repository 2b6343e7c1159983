from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "kcover_portal.api"
