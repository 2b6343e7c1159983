from django.apps import AppConfig
from django.core import checks

from kcover_portal.operate import signing_key


class OperateConfig(AppConfig):
    name = "kcover_portal.operate"

    def ready(self) -> None:
        checks.register(signing_key.usable, checks.Tags.security, deploy=True)
