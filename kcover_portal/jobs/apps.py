from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "kcover_portal.jobs"
