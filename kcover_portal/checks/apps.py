from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "kcover_portal.checks"

    def ready(self) -> None:
        """Registers the proof that a repaired machine is sound."""
        from kcover_portal.checks.services import repair_proof  # noqa: PLC0415 - models cannot be imported earlier
        from kcover_portal.repairs.services import prove_with  # noqa: PLC0415

        prove_with(repair_proof.of_node)
