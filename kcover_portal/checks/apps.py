from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "kcover_portal.checks"

    def ready(self) -> None:
        """Registers the proof that a repaired machine is sound, and the validator of rescues."""
        # Models cannot be imported earlier.
        from kcover_portal.checks.services import repair_proof, rescue_validations  # noqa: PLC0415
        from kcover_portal.repairs.services import prove_with  # noqa: PLC0415
        from kcover_portal.rescue.step.validator import validate_with  # noqa: PLC0415

        prove_with(repair_proof.of_node)
        validate_with(rescue_validations.RescueValidations())
