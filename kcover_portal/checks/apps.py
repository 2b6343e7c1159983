from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "kcover_portal.checks"

    def ready(self) -> None:
        """Registers what finds the validation of a repaired machine, and the validator of rescues."""
        # Models cannot be imported earlier.
        from kcover_portal.checks.services import repair_validation, rescue_validations  # noqa: PLC0415
        from kcover_portal.repairs.services import find_validations_with  # noqa: PLC0415
        from kcover_portal.rescue.step.validator import validate_with  # noqa: PLC0415

        find_validations_with(repair_validation.of_node)
        validate_with(rescue_validations.RescueValidations())
