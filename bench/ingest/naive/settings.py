"""Settings of a project that contains only the view."""

import os

import dj_database_url

SECRET_KEY = "only-for-measurements"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "rest_framework.authtoken",
    "bench.ingest.naive",
]
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "bench.ingest.naive.views"
DATABASES = {"default": {**dj_database_url.parse(os.environ["NAIVE_DATABASE_URL"]), "CONN_MAX_AGE": 60}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
