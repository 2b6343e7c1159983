from django.apps import AppConfig

from kcover.actions.moved_jobs import SOURCE


class SourcesConfig(AppConfig):
    name = "kcover_portal.sources"

    def ready(self) -> None:
        """Registers what other apps ask sources for: a new cluster, steps, rules, and the test of an access."""
        from kcover_portal.fleet.services import (  # noqa: PLC0415 - models cannot be imported earlier
            cluster_access,
            registry,
        )
        from kcover_portal.policies.queries import name_by  # noqa: PLC0415
        from kcover_portal.rescue.step.jobs import checkpoint_times  # noqa: PLC0415
        from kcover_portal.sources import queries  # noqa: PLC0415
        from kcover_portal.sources.services import look_up_checkpoints, make_watched_sources  # noqa: PLC0415

        registry.add_with(make_watched_sources)
        checkpoint_times.look_up_with(look_up_checkpoints)
        cluster_access.reads_logs_in(queries.log_namespaces)
        name_by(SOURCE, queries.prometheus_names)
