from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "kcover_portal.ledger"
