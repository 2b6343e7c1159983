from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "kcover_portal.notify"

    def ready(self) -> None:
        """Registers the names of channels with the policies, which are below this app."""
        from kcover_portal.notify.queries import channel_names  # noqa: PLC0415 - models cannot be imported earlier
        from kcover_portal.policies.queries import name_channels_by  # noqa: PLC0415

        name_channels_by(channel_names)
