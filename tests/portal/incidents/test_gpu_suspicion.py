"""A GPU on which many programs fail becomes a suspicion that only a rule that lists it follows."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover_portal.incidents import queries, services
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import code_of
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=3)
    policies.install_pack("kce", "enforce", author="test", reason="", now=made.now)
    policies.install_pack("nvidia", "enforce", author="test", reason="", now=made.now)
    yield made
    made.uninstall()


def fails(world: World, program: str, *, node: str = "gpu-1", code: int = 31, drill: bool = False) -> None:
    line = f"NVRM: Xid (PCI:0000:4e:00): {code}, pid=7, name={program}, Ch 00000008"
    world.fault(code, node=node, message=line, drill=drill)


def suspects() -> list[Incident]:
    return list(Incident.objects.filter(kind="other", code="gpu-suspect"))


def test_many_programs_on_one_gpu_open_a_suspicion_for_a_person(world: World) -> None:
    for program in ("alpha", "beta"):
        fails(world, program)
    assert services.suspect_gpus(now=world.now) == 0
    fails(world, "gamma", code=13)
    assert services.suspect_gpus(now=world.now) == 1
    assert services.suspect_gpus(now=world.now) == 0
    [suspect] = suspects()
    assert (suspect.device, suspect.is_user_fault, suspect.state) == ("0000:4e:00", False, "open")
    assert code_of(suspect.because) == "programs_on_one_gpu"
    world.work()
    assert [step.name for step in Rescue.objects.get().steps.all()] == ["escalate"]
    assert not world.kube.get_node("gpu-1").unschedulable
    programs = Decision.objects.filter(incident__kind="xid")
    assert {row.answer for row in programs} == {"none"}


def test_one_program_on_many_gpus_is_a_fault_of_the_program(world: World) -> None:
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        fails(world, "alpha", node=node)
    for program in ("beta", "gamma"):
        fails(world, program)
    assert services.suspect_gpus(now=world.now) == 0
    row = Incident.objects.get(node__name="gpu-1", code="31")
    found = queries.program_context_of(row, now=world.now)
    assert found is not None
    assert (found.suspect, found.because.code) == ("program", "program_on_many_gpus")


def test_drills_old_faults_and_other_codes_raise_no_suspicion(world: World) -> None:
    for program in ("alpha", "beta", "gamma"):
        fails(world, program, drill=True)
    assert services.suspect_gpus(now=world.now) == 0
    for program in ("alpha", "beta"):
        fails(world, program, node="gpu-2")
    world.now += timedelta(days=1, seconds=1)
    fails(world, "gamma", node="gpu-2")
    assert services.suspect_gpus(now=world.now) == 0
    for program in ("alpha", "beta", "gamma"):
        fails(world, program, node="gpu-3", code=43)
    assert services.suspect_gpus(now=world.now) == 0
    assert queries.program_context_of(Incident.objects.filter(code="43")[0], now=world.now) is None
