"""The process settings: one table of environment variables, read and validated once.

A secret can also come from a file named by ``NAME_FILE``. ``docs/operations/install/settings.md`` contains this table.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from kcover.checks import autopilot
from kcover.policy import modes
from kcover_portal.config import log_format, oidc_settings, setting_values, telemetry_settings
from kcover_portal.config.setting_values import Variable


class SettingsInvalid(Exception):
    """One or more variables are invalid; the message names each with what it accepts."""


VARIABLES = (
    Variable(
        "KCOVER_DATABASE_URL",
        setting_values.database,
        "sqlite:///var/kcover.sqlite3",
        "sqlite:///PATH or postgres://USER:PASSWORD@HOST:PORT/NAME",
        "the database; it holds everything",
        secret=True,
    ),
    Variable(
        "KCOVER_REDIS_URL",
        setting_values.redis,
        "",
        "redis://HOST:PORT/DB or rediss://...; empty: embedded, one process only",
        "wakes workers and updates live pages; losing it loses no data",
        secret=True,
    ),
    Variable(
        "KCOVER_SECRET_KEY",
        setting_values.secret_key,
        "",
        "random, at least 32 characters, 8 of them different; empty: one is created in var/ (one machine only)",
        "signs sessions and approval links",
        secret=True,
    ),
    Variable(
        "KCOVER_SIGNING_KEY",
        str,
        "",
        "path of a PEM file made by manage.py ledger key; empty: one is created in var/ (one machine only)",
        "Ed25519 key that signs the audit log; keep it out of the database and of its backups",
    ),
    Variable(
        "KCOVER_SECRET_KEYS",
        setting_values.secret_keys,
        "",
        "several such texts, separated by spaces or lines; instead of KCOVER_SECRET_KEY",
        "the first signs, all are accepted: add a new one in front to rotate the key without signing people out",
        secret=True,
    ),
    Variable(
        "KCOVER_ENCRYPTION_KEY_FILE",
        str,
        "",
        "the path of a file with one key a line; empty: with SQLite a key is created in var/, otherwise no encryption",
        "the keys that encrypt secrets in the database; the first encrypts, all decrypt",
    ),
    Variable(
        "KCOVER_ENCRYPTION_KEY_COMMAND",
        setting_values.checked(lambda text: not text or shlex.split(text)),
        "",
        "a program with arguments, run without a shell",
        "prints those keys, for example from a key management service; instead of the file",
    ),
    Variable(
        "KCOVER_ENGINE_KEY_FILE",
        str,
        "",
        "the path of a file with one key a line, which only worker and watch can read",
        "encrypts kubeconfigs instead, so that web and live cannot decrypt them",
    ),
    Variable(
        "KCOVER_ENGINE_KEY_COMMAND",
        setting_values.checked(lambda text: not text or shlex.split(text)),
        "",
        "a program with arguments, run without a shell",
        "prints those keys; instead of the file",
    ),
    Variable(
        "KCOVER_CLUSTER_ACCESS",
        setting_values.Choice(("engine", "read")),
        "engine",
        "engine, or read in web and live",
        "read: this process uses the second kubeconfig of a cluster, which has fewer rights, where there is one",
    ),
    Variable(
        "KCOVER_ANCHOR",
        str,
        "",
        "path of a file, appended to; none to disable; empty: a file in var/ for each database",
        "the anchor: signed heads of the audit log, one line a minute; keep it off the database's machine and backups",
    ),
    Variable(
        "KCOVER_ANCHOR_WEBHOOK",
        setting_values.web_call,
        "",
        "http://... or https://...",
        "receives the same signed heads as a JSON POST",
        secret=True,
    ),
    Variable(
        "KCOVER_ANCHOR_WEBHOOK_SECRET",
        setting_values.checked(lambda text: not text or len(text) >= 16),
        "",
        "a random text of at least 16 characters",
        "signs those calls (X-Kcover-Signature)",
        secret=True,
    ),
    Variable(
        "KCOVER_ANCHOR_S3",
        setting_values.bucket,
        "",
        "https://HOST/BUCKET or https://HOST/BUCKET/PREFIX",
        "a bucket with object lock, which gets the same signed heads as objects",
    ),
    Variable(
        "KCOVER_ANCHOR_S3_KEY",
        setting_values.checked(lambda text: not text or all(text.partition(":"))),
        "",
        "ACCESS_KEY:SECRET_KEY",
        "the account that may put objects into that bucket, and nothing else",
        secret=True,
    ),
    Variable(
        "KCOVER_ANCHOR_S3_REGION",
        setting_values.checked(bool),
        "us-east-1",
        "a region",
        "the region of that bucket",
    ),
    Variable(
        "KCOVER_ANCHOR_S3_DAYS",
        setting_values.count(36_500),
        "365",
        "1 to 36500",
        "days for which nobody can delete an object of that bucket",
    ),
    Variable(
        "KCOVER_AUDIT_FOLDER",
        str,
        "",
        "path of a folder; empty: file sinks are refused",
        "the folder of the audit stream's files; every worker needs it",
    ),
    Variable(
        "KCOVER_ALLOWED_HOSTS",
        setting_values.hosts,
        "*",
        "host names, separated by commas; * for any",
        "host names that the portal answers to",
    ),
    Variable(
        "KCOVER_PUBLIC_URL",
        setting_values.site,
        "",
        "http://HOST:PORT or https://HOST",
        "the address that browsers use, put into links; https switches secure cookies on",
    ),
    Variable(
        "KCOVER_TRUSTED_PROXIES",
        setting_values.networks,
        "127.0.0.1,::1",
        "addresses or networks such as 10.42.3.0/24, separated by commas; none to disable",
        "proxies whose X-Forwarded-For names the client; failed sign-ins are counted by its address",
    ),
    Variable(
        "KCOVER_METRICS_NETWORKS",
        setting_values.networks,
        setting_values.PRIVATE_NETWORKS,
        "addresses or networks, separated by commas; 0.0.0.0/0,::/0 for any; none for the token only",
        "clients that may read /metrics and the details of /readyz",
    ),
    Variable(
        "KCOVER_METRICS_TOKEN",
        setting_values.checked(lambda text: not text or len(text) >= 32),
        "",
        "a random text of at least 32 characters; empty: none",
        "a bearer token with which any client may read them too",
        secret=True,
    ),
    Variable(
        "KCOVER_METRICS_RESULTS",
        setting_values.count(100_000, least=0),
        "20000",
        "0 to 100000",
        "check results in /metrics, failures first; 20,000 are 3 MB at each scrape",
    ),
    Variable(
        "KCOVER_API_DOCS",
        setting_values.Choice(setting_values.API_DOCS),
        "signed-in",
        "signed-in, public or off",
        "readers of /api/docs/",
    ),
    Variable(
        "KCOVER_SESSION_IDLE_MINUTES",
        setting_values.count(720, least=5),
        "480",
        "5 to 720",
        "minutes without a request of the person until a session ends; it ends after 12 hours in any case",
    ),
    Variable(
        "KCOVER_SECOND_FACTOR",
        setting_values.Choice(setting_values.SECOND_FACTOR),
        "off",
        "off, approvers or all",
        "who needs a second factor: nobody, people who may approve somewhere, or everybody",
    ),
    *oidc_settings.VARIABLES,
    Variable(
        "KCOVER_OUTGOING_HOSTS",
        lambda text: [] if text == "none" else setting_values.hosts(text),
        "localhost,127.0.0.1,[::1]",
        "host names or addresses, separated by commas; none on Kubernetes",
        "loopback, link-local and metadata addresses that webhooks, channels, buckets and decision systems may have",
    ),
    Variable(
        "KCOVER_KUBECONFIG_COMMANDS",
        setting_values.programs,
        "",
        "names of programs and paths of files as kubeconfigs write them, separated by commas",
        "programs that a kubeconfig may run for credentials, and files that it may read; others are refused",
    ),
    Variable(
        "KCOVER_MAIL_URL",
        setting_values.mail,
        "",
        "smtp://, smtp+tls:// (STARTTLS) or smtps://USER:PASSWORD@HOST:PORT",
        "the server that sends notification e-mail; empty: no e-mail",
        secret=True,
    ),
    Variable(
        "KCOVER_MAIL_FROM",
        setting_values.checked(setting_values.MAILBOX.fullmatch),
        "kcover portal <kcover@localhost>",
        "an address, or a name and <an address>",
        "the sender of that e-mail",
    ),
    Variable(
        "KCOVER_MODE",
        setting_values.Choice(tuple(modes.MODES)),
        "enforce",
        "paused, shadow, approve or enforce",
        "the upper bound for every cluster and rule",
    ),
    Variable(
        "KCOVER_LOG_FORMAT",
        setting_values.Choice(tuple(log_format.FORMATS)),
        log_format.TEXT,
        " or ".join(log_format.FORMATS),
        "the format of log lines; json has the ids of request, task, rescue and incident as fields",
    ),
    *telemetry_settings.VARIABLES,
    Variable(
        "KCOVER_TIME_ZONE", setting_values.zone, "UTC", "a zone such as Asia/Shanghai", "the default time zone of pages"
    ),
    Variable(
        "KCOVER_GRAFANA_URL",
        setting_values.dashboard,
        "",
        "http:// or https:// address with the placeholders {cluster}, {node}, {from} and {to} behind the host",
        "links from the pages of nodes and incidents to a dashboard; {from} and {to} are milliseconds of the epoch",
    ),
    Variable(
        "KCOVER_DEMO_URL",
        setting_values.web,
        "",
        "a simulator's address",
        "adds buttons to the console that inject faults into this simulator",
    ),
    Variable(
        "KCOVER_WEB_URL",
        setting_values.web,
        "",
        "http://HOST:PORT",
        "where the live process forwards pages and REST to; empty: it answers them itself",
    ),
    Variable(
        "KCOVER_WORKERS",
        setting_values.count(512),
        "8",
        "1 to 512",
        "threads of one worker; each has a connection to the database",
    ),
    Variable(
        "KCOVER_HEARTBEAT_FILE",
        str,
        "",
        "path of a file, one for each process; empty: none",
        "worker, beat or watch touches it every 5 s while it works; a probe compares its age",
    ),
    Variable(
        "KCOVER_KEEP_DAYS",
        setting_values.count(3650),
        "90",
        "1 to 3650",
        "days to keep occurrences of closed incidents, check changes, runs, deliveries; the audit log stays",
    ),
    Variable(
        "KCOVER_EVIDENCE_MIB",
        setting_values.count(1_048_576, least=64),
        "2048",
        "64 to 1048576",
        "MiB of the database for evidence; beyond it, the oldest is deleted. KCOVER_KEEP_DAYS limits its age",
    ),
    Variable(
        "KCOVER_SERVICE_ACCOUNTS",
        setting_values.accounts,
        "kcover-system/kcover-agent",
        "NAMESPACE/NAME, separated by commas; none to disable",
        "service accounts whose pod tokens are accepted from agents, each for the node of its pod",
    ),
    Variable(
        "KCOVER_DEEP_CHECKS_HOURS",
        setting_values.count(24, least=0),
        "0",
        "0 to 24",
        "hours between runs of dcgm level 3 on idle nodes, in clusters with Autopilot labels; 0: none",
    ),
    Variable(
        "KCOVER_DCGM_FATAL_ERRORS",
        setting_values.tests,
        ",".join(autopilot.FATAL_DCGM_TESTS),
        "parts of DCGM test names, separated by commas; none to disable",
        "tests whose failure in such a run sets the Autopilot label to EVICT",
    ),
    Variable(
        "KCOVER_DEBUG", setting_values.switch, "false", "true or false", "Django's debug pages; never in production"
    ),
)


def read(environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Returns the value of each variable by name. Raises SettingsInvalid, which lists every invalid variable."""
    values: dict[str, object] = {}
    problems = []
    for variable in VARIABLES:
        try:
            text = _text(variable, environ)
            values[variable.name] = variable.read(text)
        except (ValueError, KeyError):
            problems.append(f"{variable.name} is invalid; it accepts {variable.accepts}")
        except OSError as error:
            problems.append(f"cannot read {variable.name}_FILE: {error}")
    known = {variable.name for variable in VARIABLES} | {f"{v.name}_FILE" for v in VARIABLES if v.secret}
    for name in environ:
        if name.startswith("KCOVER_") and not name.startswith("KCOVER_AGENT_") and name not in known:
            problems.append(f"{name} is not a portal setting; known settings: {', '.join(sorted(known))}")
    if problems:
        raise SettingsInvalid("; ".join(problems))
    return values


def _text(variable: Variable, environ: Mapping[str, str]) -> str:
    path = environ.get(f"{variable.name}_FILE") if variable.secret else None
    if path:
        return Path(path).read_text(encoding="utf-8").strip()
    return environ.get(variable.name) or variable.default


def table() -> str:
    """Returns the settings as the Markdown table of docs/operations/install/settings.md."""
    rows = ["| variable | accepts | default | what for |", "|---|---|---|---|"]
    for variable in VARIABLES:
        name = f"`{variable.name}`" + (f" or `{variable.name}_FILE`" if variable.secret else "")
        default = f"`{variable.default}`" if variable.default else "nothing"
        rows.append(f"| {name} | {variable.accepts} | {default} | {variable.about} |")
    return "\n".join(rows)
