"""``manage.py release --taints-of``: a preview, and a release that removes another system's taint, too."""

import io

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from kcover import reasons
from kcover.actions import taint
from kcover.nodes import foreign_taints, marks
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_rows
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import proof
from tests import proofs
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db
OTHER = port.Taint("dedicated", "train", "NoSchedule")
FAULTY = port.Taint(*foreign_taints.KNOWN["konduktor"])
WITH_TAINT = "gpu-2"


@pytest.fixture
def world(db: None):
    made = World(nodes=3)
    made.kube.apply_node(WITH_TAINT, port.NodeChange(add_taints=(FAULTY, OTHER)))
    node_rows.sync_list(made.cluster, made.kube.list_nodes().items, now=made.now)
    yield made
    made.uninstall()


def said(*options: str) -> str:
    out = io.StringIO()
    call_command("release", *options, "--cluster", "c1", stdout=out)
    return out.getvalue()


def work(world: World) -> None:
    """The workers do what was asked for by the true clock."""
    world.now = timezone.now()
    world.pass_time(1)


def test_the_preview_names_what_would_go_and_changes_nothing(world: World) -> None:
    shown = said("--all", "--taints-of", "konduktor")
    assert [line.split(":")[0] for line in shown.splitlines()[:-1]] == [WITH_TAINT]
    assert "trainy.konduktor.ai/faulty=true:NoSchedule" in shown
    assert not Rescue.objects.exists()
    assert FAULTY in world.kube.get_node(WITH_TAINT).taints


def test_the_preview_believes_no_mark_that_only_the_kubelet_states(world: World) -> None:
    taints = (("x\x1b[2J\ngpu-2: nothing", "", "NoSchedule"), (taint.DEFAULT_KEY, "\x1b[2J\nx", "NoSchedule"))
    mark = marks.Marks(rescue=7, taints=taints).render()
    world.kube.apply_node(NODE, port.NodeChange(annotations={marks.ANNOTATION: mark}))
    node_rows.sync_list(world.cluster, world.kube.list_nodes().items, now=world.now)
    shown = said(NODE, "--taints-of", "konduktor")
    assert shown.splitlines()[:-1] == [rf"{NODE}: {taint.DEFAULT_KEY}=\x1b[2J\nx:NoSchedule"]


def test_with_yes_the_taint_goes_and_that_of_others_stays(world: World) -> None:
    said("--all", "--taints-of", "konduktor", "--yes", "--reason", "from Konduktor")
    work(world)
    assert world.kube.get_node(WITH_TAINT).taints == (OTHER,)
    rescue = Rescue.objects.get()
    assert (rescue.node.name, rescue.state) == (WITH_TAINT, "succeeded")
    assert "trainy.konduktor.ai/faulty" in str(reasons.from_json(rescue.steps.get().because))
    assert Entry.objects.filter(node=WITH_TAINT, verb="release.done").count() == 1
    assert proofs.refusal(proofs.sign(proof.unsigned(rescue))) == ""


def test_all_skips_what_the_portal_isolated_and_what_has_a_fault(db: None) -> None:
    world = World(nodes=3)
    world.fault(62)
    world.work()
    world.fault(79, node="gpu-3")
    for name in (NODE, WITH_TAINT, "gpu-3"):
        world.kube.apply_node(name, port.NodeChange(add_taints=(FAULTY,)))
    node_rows.sync_list(world.cluster, world.kube.list_nodes().items, now=world.now)
    before = set(Rescue.objects.values_list("pk", flat=True))
    assert [line.split(": ")[:2] for line in said("--all", "--taints-of", "konduktor").splitlines()[:2]] == [
        [NODE, "skipped"],
        ["gpu-3", "skipped"],
    ]
    said("--all", "--taints-of", "konduktor", "--yes")
    assert [one.node.name for one in Rescue.objects.exclude(pk__in=before)] == [WITH_TAINT]
    world.uninstall()


def test_the_taint_of_the_portals_own_goes_once(db: None) -> None:
    attribute = "{key: trainy.konduktor.ai/faulty, value: 'true'}"
    own = CORDON.replace("rescue.ksyun.com", "kcover.io").replace(
        "{name: cordon}", f"{{name: taint, attribute: {attribute}}}"
    )
    world = World(policy=own)
    world.fault(62)
    world.work()
    assert FAULTY in world.kube.get_node(NODE).taints
    assert "of konduktor" not in said(NODE, "--taints-of", "konduktor")
    said(NODE, "--taints-of", "konduktor", "--yes")
    work(world)
    assert world.kube.get_node(NODE).taints == ()
    assert str(reasons.from_json(world.rescue().steps.get().because)).count("trainy.konduktor.ai/faulty") == 1
    world.uninstall()


def test_without_the_option_the_taint_stays(world: World) -> None:
    said(WITH_TAINT)
    work(world)
    assert FAULTY in world.kube.get_node(WITH_TAINT).taints


def test_a_taint_with_another_value_stays(world: World) -> None:
    other = port.Taint(FAULTY.key, "false", FAULTY.effect)
    world.kube.apply_node(NODE, port.NodeChange(add_taints=(other,)))
    said(NODE, "--taints-of", "konduktor", "--yes")
    work(world)
    assert other in world.kube.get_node(NODE).taints


@pytest.mark.parametrize("mode", ["shadow", "paused"])
def test_a_cluster_that_is_only_read_is_refused(world: World, mode: str) -> None:
    Cluster.objects.update(mode=mode)
    with pytest.raises(CommandError):
        said("--all", "--taints-of", "konduktor", "--yes")
    work(world)
    assert FAULTY in world.kube.get_node(WITH_TAINT).taints


def test_an_unknown_system_is_refused(world: World) -> None:
    with pytest.raises(CommandError):
        said("--all", "--taints-of", "unknown")
