from django.apps import AppConfig


class EvidenceConfig(AppConfig):
    name = "kcover_portal.evidence"
