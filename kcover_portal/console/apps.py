from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from kcover_portal.accounts.models import User


class ConsoleConfig(AppConfig):
    name = "kcover_portal.console"

    def ready(self) -> None:
        """Registers how the query of a saved view is checked; REST saves views, too."""
        from kcover_portal.accounts.services import saved_views  # noqa: PLC0415 - models cannot be imported earlier

        saved_views.check_with(_checked_query)


def _checked_query(user: "User", listing: str, query: str) -> str:
    from kcover_portal.console.reads import saved_views  # noqa: PLC0415 - imports every list, which workers never need

    return saved_views.checked_query(user, listing, query)
