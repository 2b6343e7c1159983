from django.apps import AppConfig


class OperateConfig(AppConfig):
    name = "kcover_portal.operate"
