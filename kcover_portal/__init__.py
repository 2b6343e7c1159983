"""The portal: a Django project in apps, one per station of the flow (see docs/architecture.md)."""

from kcover_portal.config import gc_tuning

gc_tuning.collect_rarely()

from kcover_portal.celery import app as celery_app  # noqa: E402 - Celery and Django are what is large

__all__ = ["celery_app"]
