"""NVSentinel alone, without agents: its health events are planned by the pack ``nvidia``."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Decision
from tests.portal.sources.conftest import Sender

Make = Callable[..., dict[str, Any]]
REPAIR = ["cordon", "restart_jobs", "drain", "reboot", "ready", "verify", "uncordon"]
RESET = [step for step in REPAIR if step != "restart_jobs"]
INSPECT = ["cordon", "restart_jobs", "escalate"]


@pytest.mark.parametrize(
    ("check", "code", "answer", "steps"),
    [
        ("SysLogsXIDError", "79", "rescue", INSPECT),
        ("SysLogsXIDError", "62", "rescue", REPAIR),
        ("SysLogsSXIDError", "11004", "rescue", REPAIR),
        ("SysLogsXIDError", "31", "none", []),
        ("GpuMemWatch", "DCGM_FR_VOLATILE_DBE_DETECTED", "rescue", REPAIR),
        ("GpuAllWatch", "DCGM_FR_UNCONTAINED_ERROR", "rescue", REPAIR),
        ("GpuMemWatch", "DCGM_FR_PENDING_ROW_REMAP", "rescue", RESET),
        ("GpuMemWatch", "DCGM_FR_ROW_REMAP_FAILURE", "rescue", INSPECT),
        ("GpuInforomWatch", "DCGM_FR_CORRUPT_INFOROM", "rescue", INSPECT),
        ("GpuNvswitchFatalWatch", "DCGM_FR_NVSWITCH_FATAL_ERROR", "rescue", INSPECT),
        ("GpuMemWatch", "DCGM_FR_VOLATILE_SBE_DETECTED", "none", []),
        ("GpuPowerWatch", "DCGM_FR_CLOCKS_EVENT_POWER", "none", []),
    ],
)
def test_a_health_event_is_planned_by_the_pack(
    sentinel: Sender, health: Make, now: datetime, check: str, code: str, answer: str, steps: list[str]
) -> None:
    Node.objects.update(gpus=8)
    policies.install_pack("nvidia", "enforce", author="user:anna", reason="", now=now)
    event = health(checkName=check, errorCode=[code])
    assert sentinel.post(event, content_type="application/cloudevents+json").status_code == 202
    rescues.decide(Incident.objects.get().pk, now=now)
    decision = Decision.objects.get()
    assert (decision.answer, [step["name"] for step in decision.steps]) == (answer, steps)
