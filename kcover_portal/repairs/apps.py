from django.apps import AppConfig


class RepairsConfig(AppConfig):
    name = "kcover_portal.repairs"

    def ready(self) -> None:
        """Registers the repair desk of rescues, and offers what happens to repairs to the sinks of the audit stream."""
        # Models cannot be imported earlier.
        from kcover_portal.repairs.services import rescue_repairs, ticket_events  # noqa: PLC0415
        from kcover_portal.rescue.step.repair_desk import repair_with  # noqa: PLC0415

        ticket_events.register()
        repair_with(rescue_repairs.RescueRepairs())
