from django.apps import AppConfig


class AuditStreamConfig(AppConfig):
    name = "kcover_portal.audit_stream"
