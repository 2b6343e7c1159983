"""The WSGI application: pages and REST."""

import os

from django.core.wsgi import get_wsgi_application

from kcover_portal.config import gc_tuning

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")

GUNICORN_GIVES_UP = 3  # exit status; with any other, gunicorn would restart the worker forever

try:
    application = get_wsgi_application()
except SystemExit as error:  # the settings are invalid; the message is already printed
    raise SystemExit(GUNICORN_GIVES_UP) from error

gc_tuning.freeze_after_startup()
