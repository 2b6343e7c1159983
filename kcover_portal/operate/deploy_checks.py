"""System checks of a deployment (``manage.py check --deploy``): secrets, plain HTTP, and trusted proxies."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks

from kcover_portal.shared_reads import portal_checks

LEAST_PREFIX = {4: 20, 6: 56}  # of a network of trusted proxies; a larger network contains ordinary pods


def secrets_are_encrypted(**_given: Any) -> Sequence[checks.CheckMessage]:
    """Warns if the database stores secrets as they are."""
    problem = portal_checks.plain_secrets()
    if problem is None:
        return []
    hint = "Create a key with manage.py secrets key, and keep it apart from the database's backups."
    return [checks.Warning(str(problem.because), hint=hint, id="kcover.W003")]


def browsers_use_https(**_given: Any) -> Sequence[checks.CheckMessage]:
    """Warns if the portal's address is plain HTTP."""
    problem = portal_checks.plain_address()
    return [checks.Warning(str(problem.because), id="kcover.W004")] if problem is not None else []


def proxies_are_few(**_given: Any) -> Sequence[checks.CheckMessage]:
    """Warns of each network of trusted proxies that is too large."""
    return [
        checks.Warning(
            f"KCOVER_TRUSTED_PROXIES trusts every machine of {network} to say who the client is.",
            hint="Name the addresses of your proxy or Ingress controller only.",
            id="kcover.W005",
        )
        for network in settings.KCOVER_TRUSTED_PROXIES
        if network.prefixlen < LEAST_PREFIX[network.version] and not network.is_loopback
    ]
