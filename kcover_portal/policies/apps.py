from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    name = "kcover_portal.policies"
