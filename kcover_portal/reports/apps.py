from django.apps import AppConfig


class ReportsConfig(AppConfig):
    name = "kcover_portal.reports"
