"""The command ``kcover-portal``: every command of the portal, also without a checkout."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    """Runs the command named by the arguments."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
