"""The version of the portal."""

from importlib import metadata


def installed() -> str | None:
    """The version of the installed package; None in a checkout."""
    try:
        return metadata.version("kcover-portal")
    except metadata.PackageNotFoundError:
        return None
