from django.apps import AppConfig


class PreflightConfig(AppConfig):
    name = "kcover_portal.preflight"

    def ready(self) -> None:
        """Registers how standbys prove that they are sound."""
        # Models cannot be imported earlier.
        from kcover_portal.preflight.queries import gate_passed  # noqa: PLC0415
        from kcover_portal.rescue.queries.standbys import tested_by  # noqa: PLC0415

        tested_by(gate_passed)
