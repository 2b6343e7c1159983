"""Django's database settings from a URL: time-outs, transactions, and the file of SQLite."""

from pathlib import Path
from typing import Any

import dj_database_url

from kcover_portal.config import private_files


def of_url(url: str, *, folder: Path) -> dict[str, Any]:
    """Returns an entry of DATABASES. Creates the file of SQLite below ``folder``; raises OSError if it cannot."""
    config: dict[str, Any] = dict(dj_database_url.parse(url))
    config["CONN_MAX_AGE"] = 600  # a new connection costs milliseconds of CPU (SQLite, too) and has prepared nothing
    options = config.setdefault("OPTIONS", {})
    if config["ENGINE"].endswith("sqlite3"):
        path = folder / config["NAME"]
        config["NAME"] = str(path)
        try:
            private_files.make_folder(path.parent)
            private_files.make_file(path)  # SQLite would make it world-readable; its journals copy the mode
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        # IMMEDIATE: a transaction that writes waits for the lock at its start instead of failing in the middle.
        options |= {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA recursive_triggers=ON;",
        }
    else:
        config["CONN_HEALTH_CHECKS"] = True
        # Detects a vanished server after seconds; Linux's default is a quarter of an hour.
        options |= {"connect_timeout": 5, "tcp_user_timeout": 10_000}
        options |= {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2}
        # Prepared statements save parsing and planning, a third of the time of short ones.
        options |= {"server_side_binding": True, "prepare_threshold": 1}
    return config
