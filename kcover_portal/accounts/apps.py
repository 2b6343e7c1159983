from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "kcover_portal.accounts"
