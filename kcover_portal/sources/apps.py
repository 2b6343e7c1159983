from django.apps import AppConfig


class SourcesConfig(AppConfig):
    name = "kcover_portal.sources"

    def ready(self) -> None:
        """Lets each new cluster have the sources that the watch feeds, and steps of rescues ask Prometheus."""
        from kcover_portal.fleet.management import registry  # noqa: PLC0415 - models cannot be imported earlier
        from kcover_portal.rescue.step import checkpoint_times  # noqa: PLC0415
        from kcover_portal.sources.services import look_up_checkpoints, make_watched_sources  # noqa: PLC0415

        registry.add_with(make_watched_sources)
        checkpoint_times.look_up_with(look_up_checkpoints)
