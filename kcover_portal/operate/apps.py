import importlib

from django.apps import AppConfig
from django.core import checks

from kcover_portal.operate import signing_key


class OperateConfig(AppConfig):
    name = "kcover_portal.operate"

    def ready(self) -> None:
        checks.register(signing_key.usable, checks.Tags.security, deploy=True)
        deploy_checks = importlib.import_module("kcover_portal.operate.deploy_checks")  # it reads models
        for check in (
            deploy_checks.secrets_are_encrypted,
            deploy_checks.browsers_use_https,
            deploy_checks.proxies_are_few,
        ):
            checks.register(check, checks.Tags.security, deploy=True)
