"""The portal: a Django project in apps, one per station of the flow (see docs/architecture.md)."""

from kcover_portal.celery import app as celery_app

__all__ = ["celery_app"]
