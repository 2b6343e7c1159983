"""Who a management command acts for."""

from django.contrib.auth.management import get_system_username


def shell_actor() -> str:
    """Returns the name of the operating system's user in the audit log, for management commands."""
    return f"command:{get_system_username() or 'unknown'}"
