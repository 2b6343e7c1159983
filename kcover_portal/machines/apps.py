from django.apps import AppConfig


class MachinesConfig(AppConfig):
    name = "kcover_portal.machines"
