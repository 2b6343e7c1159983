from django.apps import AppConfig


class AnchorsConfig(AppConfig):
    name = "kcover_portal.anchors"
