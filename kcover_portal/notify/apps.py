from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "kcover_portal.notify"
