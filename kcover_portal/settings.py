"""Django's settings, built from the environment (see ``env.py``). Operating settings are rows in the database."""

import contextlib
import secrets
import sys
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urlsplit

from csp.constants import SELF

from kcover_portal.config import (
    database_config,
    env,
    log_format,
    oidc_settings,
    private_files,
    setting_values,
    static_files,
    telemetry_settings as telemetry,
)
from kcover_portal.config.request_limits import MAX_BODY as DATA_UPLOAD_MAX_MEMORY_SIZE  # noqa: F401  a larger one is refused before

# Files shipped with the code (templates, static, locale, deploy) are in the installed package, or at the root of the
# checkout. Processes run in the working directory if installed, otherwise in the checkout, and write to its var/.
PACKAGE = Path(__file__).resolve().parent
INSTALLED = (PACKAGE / "templates").is_dir()
BASE_DIR = PACKAGE if INSTALLED else PACKAGE.parent
WORK_DIR = Path.cwd() if INSTALLED else BASE_DIR
VAR_DIR = WORK_DIR / "var"


def _end(problem: str) -> NoReturn:
    """Exit with the error message instead of a traceback."""
    sys.stderr.write(f"kcover portal: {problem}\n")
    raise SystemExit(2)


try:
    ENV = env.read()
    KCOVER_OIDC = oidc_settings.read(ENV)
    KCOVER_TRACES, _REPORTS = telemetry.traces(ENV), telemetry.sentry(ENV)
except (env.SettingsInvalid, oidc_settings.OidcIncomplete, telemetry.TelemetryUnavailable) as invalid:
    _end(str(invalid))


def _secret_keys() -> list[str]:
    """Returns the configured keys, or one that is generated once in var/, so that one machine needs no setup."""
    one, several = cast("str", ENV["KCOVER_SECRET_KEY"]), cast("list[str]", ENV["KCOVER_SECRET_KEYS"])
    if one and several:
        _end("set only one of KCOVER_SECRET_KEY and KCOVER_SECRET_KEYS")
    if one or several:
        return several or [one]
    path = VAR_DIR / "secret_key"
    try:
        if not path.exists():
            private_files.make_folder(VAR_DIR)
            with contextlib.suppress(FileExistsError):  # another process started at the same time
                private_files.write_new(path, secrets.token_urlsafe(50).encode())
        return [path.read_text(encoding="utf-8").strip()]
    except OSError as error:
        _end(f"KCOVER_SECRET_KEY is not set, and no key can be stored in {path}: {error.strerror}")


SECRET_KEY, *SECRET_KEY_FALLBACKS = _secret_keys()
KCOVER_ENCRYPTION_KEY_FILE = cast("str", ENV["KCOVER_ENCRYPTION_KEY_FILE"])
KCOVER_ENCRYPTION_KEY_COMMAND = cast("str", ENV["KCOVER_ENCRYPTION_KEY_COMMAND"])
KCOVER_ENGINE_KEY_FILE = cast("str", ENV["KCOVER_ENGINE_KEY_FILE"])
KCOVER_ENGINE_KEY_COMMAND = cast("str", ENV["KCOVER_ENGINE_KEY_COMMAND"])
for _key in ("KCOVER_ENCRYPTION_KEY", "KCOVER_ENGINE_KEY"):
    if ENV[f"{_key}_FILE"] and ENV[f"{_key}_COMMAND"]:
        _end(f"set only one of {_key}_FILE and {_key}_COMMAND")
KCOVER_CLUSTER_ACCESS = cast("str", ENV["KCOVER_CLUSTER_ACCESS"])
if KCOVER_CLUSTER_ACCESS == "read" and (KCOVER_ENGINE_KEY_FILE or KCOVER_ENGINE_KEY_COMMAND):
    _end("KCOVER_CLUSTER_ACCESS=read is for web and live, which must not have the engine's key; remove one of both")
# SQLite means one machine. With PostgreSQL, a key in var/ could vanish with its pod, and all secrets with it.
KCOVER_OWN_ENCRYPTION_KEY = (
    VAR_DIR / "encryption_key" if cast("str", ENV["KCOVER_DATABASE_URL"]).startswith("sqlite") else None
)
DEBUG = cast("bool", ENV["KCOVER_DEBUG"])
ALLOWED_HOSTS = cast("list[str]", ENV["KCOVER_ALLOWED_HOSTS"])
KCOVER_MODE = cast("str", ENV["KCOVER_MODE"])
KCOVER_DEMO_URL = cast("str", ENV["KCOVER_DEMO_URL"])
KCOVER_GRAFANA_URL = cast("str", ENV["KCOVER_GRAFANA_URL"])
KCOVER_WEB_URL = cast("str", ENV["KCOVER_WEB_URL"])
KCOVER_PUBLIC_URL = cast("str", ENV["KCOVER_PUBLIC_URL"])
KCOVER_TRUSTED_PROXIES = cast("list[IPv4Network | IPv6Network]", ENV["KCOVER_TRUSTED_PROXIES"])
KCOVER_METRICS_NETWORKS = cast("list[IPv4Network | IPv6Network]", ENV["KCOVER_METRICS_NETWORKS"])
KCOVER_METRICS_TOKEN = cast("str", ENV["KCOVER_METRICS_TOKEN"])
KCOVER_METRICS_RESULTS = cast("int", ENV["KCOVER_METRICS_RESULTS"])
KCOVER_API_DOCS = cast("str", ENV["KCOVER_API_DOCS"])
KCOVER_SESSION_IDLE_MINUTES = cast("int", ENV["KCOVER_SESSION_IDLE_MINUTES"])
KCOVER_SECOND_FACTOR = cast("str", ENV["KCOVER_SECOND_FACTOR"])
KCOVER_HEARTBEAT_FILE = cast("str", ENV["KCOVER_HEARTBEAT_FILE"])
KCOVER_KUBECONFIG_COMMANDS = cast("list[str]", ENV["KCOVER_KUBECONFIG_COMMANDS"])
KCOVER_OUTGOING_HOSTS = cast("list[str]", ENV["KCOVER_OUTGOING_HOSTS"])
KCOVER_KEEP_DAYS = cast("int", ENV["KCOVER_KEEP_DAYS"])
KCOVER_EVIDENCE_MIB = cast("int", ENV["KCOVER_EVIDENCE_MIB"])
KCOVER_SERVICE_ACCOUNTS = cast("list[str]", ENV["KCOVER_SERVICE_ACCOUNTS"])
KCOVER_DEEP_CHECKS_HOURS = cast("int", ENV["KCOVER_DEEP_CHECKS_HOURS"])
KCOVER_DCGM_FATAL_ERRORS = cast("list[str]", ENV["KCOVER_DCGM_FATAL_ERRORS"])
REDIS_URL = cast("str", ENV["KCOVER_REDIS_URL"])
# Without a setting one machine keeps its key in var/; `serve` and `standalone` create it there.
KCOVER_SIGNING_KEY = VAR_DIR.parent / (cast("str", ENV["KCOVER_SIGNING_KEY"]) or VAR_DIR / "signing_key.pem")
KCOVER_ANCHOR = setting_values.anchor_file(ENV, var=VAR_DIR)
KCOVER_AUDIT_FOLDER = VAR_DIR.parent / cast("str", ENV["KCOVER_AUDIT_FOLDER"]) if ENV["KCOVER_AUDIT_FOLDER"] else None
KCOVER_ANCHOR_WEBHOOK = cast("str", ENV["KCOVER_ANCHOR_WEBHOOK"])
KCOVER_ANCHOR_WEBHOOK_SECRET = cast("str", ENV["KCOVER_ANCHOR_WEBHOOK_SECRET"])
KCOVER_ANCHOR_S3 = setting_values.anchor_bucket(ENV)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_filters",
    "django_htmx",
    "rest_framework",
    *("drf_spectacular", "drf_spectacular_sidecar"),
    "csp",
    "kcover_portal.ledger",
    "kcover_portal.runtime",
    "kcover_portal.fleet",
    "kcover_portal.accounts",
    "kcover_portal.policies",
    *("kcover_portal.incidents", "kcover_portal.machines", "kcover_portal.evidence"),
    *("kcover_portal.anchors", "kcover_portal.audit_stream"),
    "kcover_portal.rescue",
    *("kcover_portal.checks", "kcover_portal.jobs", "kcover_portal.repairs", "kcover_portal.parts"),
    "kcover_portal.preflight",
    *("kcover_portal.notify", "kcover_portal.sources", "kcover_portal.reports", "kcover_portal.needs"),
    *("kcover_portal.api", "kcover_portal.console", "kcover_portal.operate"),
]

MIDDLEWARE = [
    "kcover_portal.operate.request_ids.identify",
    "kcover_portal.operate.addresses.without_nul",
    "kcover_portal.operate.addresses.without_last_slash",
    "kcover_portal.operate.addresses.without_forged_scheme",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "kcover_portal.operate.compression.CompressedPages",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "kcover_portal.console.activity.note_activity",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "kcover_portal.urls"
ASGI_APPLICATION = "kcover_portal.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "kcover_portal.console.context.shared",
            ],
        },
    }
]


try:
    DATABASES = {"default": database_config.of_url(cast("str", ENV["KCOVER_DATABASE_URL"]), folder=VAR_DIR.parent)}
except OSError as error:
    _end(f"KCOVER_DATABASE_URL: cannot create {error.filename}: {error.strerror}")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = [
    "kcover_portal.accounts.services.password_hasher.BoundedArgon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "console:sign-in"
LOGIN_REDIRECT_URL = "console:home"
LOGOUT_REDIRECT_URL = "console:sign-in"
SESSION_ENGINE = "kcover_portal.accounts.services.session_store"
SESSION_COOKIE_AGE = 12 * 3600  # from the sign-in on; KCOVER_SESSION_IDLE_MINUTES may end a session earlier

# Secure cookies, HSTS and redirects are on if the public address uses HTTPS.
_https = KCOVER_PUBLIC_URL.startswith("https://")
CSRF_TRUSTED_ORIGINS = [KCOVER_PUBLIC_URL] if KCOVER_PUBLIC_URL else []
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = _https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")  # of trusted proxies only: operate.addresses
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
CSRF_FAILURE_VIEW = "django.views.csrf.csrf_failure"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "frame-ancestors": ["'none'"],
        "form-action": [SELF],
        "base-uri": ["'none'"],
    },
}

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = cast("str", ENV["KCOVER_TIME_ZONE"])
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = VAR_DIR / "static"
private_files.make_folder(STATIC_ROOT)  # WhiteNoise warns if it is missing
_COLLECTED = static_files.are_collected(STATIC_ROOT, base=BASE_DIR)
STORAGES = static_files.storages(collected=_COLLECTED)
WHITENOISE_USE_FINDERS = not _COLLECTED
WHITENOISE_AUTOREFRESH = False

# Signals may be lost, so pub/sub is enough. socket_timeout None: redis-py 8 would disconnect idle listeners after 5 s
# (django/channels_redis#422).
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None}]},
    }
    if REDIS_URL
    else {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}

CELERY_BROKER_URL = REDIS_URL or "memory://"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for Redis without limit
# A ring is not retried, because the sweep finds what is due. Socket time-outs are in kcover_portal.config.broker.
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, float] = {"max_retries": 0} if REDIS_URL else {}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONCURRENCY = cast("int", ENV["KCOVER_WORKERS"])
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "kcover"

_mail = urlsplit(cast("str", ENV["KCOVER_MAIL_URL"]))
EMAIL_HOST = _mail.hostname or ""
EMAIL_PORT = _mail.port or setting_values.MAIL_PORTS.get(_mail.scheme, 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_mail.username or ""), unquote(_mail.password or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.scheme == "smtp+tls", _mail.scheme == "smtps"
EMAIL_TIMEOUT = 10  # seconds; limits how long an unresponsive server occupies a worker
DEFAULT_FROM_EMAIL = cast("str", ENV["KCOVER_MAIL_FROM"])

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "kcover_portal.api.authentication.TokenAuthentication",
        "kcover_portal.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["kcover_portal.api.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["kcover_portal.api.body_parsers.StrictJsonParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "EXCEPTION_HANDLER": "kcover_portal.api.problems.handle",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "kcover portal",
    "DESCRIPTION": "Faults, decisions and rescues of GPU nodes on Kubernetes.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["kcover_portal.api.permissions.DocsPermission"],
    "ENUM_NAME_OVERRIDES": {  # choices whose field name also occurs elsewhere
        "ChannelKindEnum": "kcover_portal.notify.models.Channel.Kind",
        "PreflightStateEnum": "kcover_portal.preflight.models.PreflightRun.State",
        "ProfileNameEnum": "kcover.validation.profiles.DEFAULTS",
        "ValidationStateEnum": "kcover_portal.checks.models.Validation.State",
        "DeliveryStateEnum": "kcover_portal.notify.models.Delivery.State",
        "NeedKindEnum": "kcover.needs.KINDS",
        "PairPlanStateEnum": "kcover_portal.preflight.models.PairPlan.State",
        "PairTestStateEnum": "kcover_portal.preflight.models.PairTest.State",
        "PartKindEnum": "kcover_portal.parts.models.Part.Kind",
        "RepairStateEnum": "kcover_portal.repairs.models.Repair.State",
        "SinkKindEnum": "kcover_portal.audit_stream.models.Sink.Kind",
        "SourceKindEnum": "kcover_portal.sources.models.Source.Kind",
        "TokenKindEnum": "kcover_portal.accounts.models.ApiToken.Kind",
        "HealthStateEnum": "kcover.nodes.health.STATES",
        "HealthCauseEnum": "kcover.nodes.health.CAUSES",
    },
    "POSTPROCESSING_HOOKS": ["kcover_portal.api.schema_texts.postprocess"],
    **dict.fromkeys(("SWAGGER_UI_DIST", "SWAGGER_UI_FAVICON_HREF"), "SIDECAR"),
}

LOGGING = log_format.configuration(cast("str", ENV["KCOVER_LOG_FORMAT"]), _REPORTS)
