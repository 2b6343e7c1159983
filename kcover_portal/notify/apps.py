from django.apps import AppConfig

from kcover.policy.document.model import CHANNEL


class NotifyConfig(AppConfig):
    name = "kcover_portal.notify"

    def ready(self) -> None:
        """Registers the names of channels, and those of namespaces, with apps that are below this one."""
        from kcover_portal.notify import queries  # noqa: PLC0415 - models cannot be imported earlier
        from kcover_portal.policies.queries import name_by  # noqa: PLC0415
        from kcover_portal.workloads import namespace_channels  # noqa: PLC0415

        name_by(CHANNEL, queries.channel_names)
        namespace_channels.read_with(queries.channels_of_namespaces)
