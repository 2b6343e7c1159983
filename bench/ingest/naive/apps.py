from django.apps import AppConfig


class NaiveConfig(AppConfig):
    name = "bench.ingest.naive"
    label = "naive"
