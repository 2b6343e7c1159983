"""No English reaches a reader of the Chinese pages, names and codes apart."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from django.test import Client
from django.utils import timezone, translation

from kcover import reasons
from kcover.checks import autopilot
from kcover.decisions import guards
from kcover.repairs.repairs import Part
from kcover_portal.accounts.models import User
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun, CheckTarget, Validation
from kcover_portal.checks.services import validations
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.fleet.services import cluster_settings, node_selection
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import localization
from kcover_portal.notify import services as notify
from kcover_portal.notify.models import Channel, Delivery
from kcover_portal.parts.models import Part as HardwarePart, Placement
from kcover_portal.preflight import services as preflight
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightRun
from kcover_portal.preflight.services import pair_plans
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import code_of, codes_of
from tests.portal.checks.test_check_runs import FINE, answer
from tests.portal.console.conftest import PASSWORD
from tests.portal.preflight.test_runs import raw, receive
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import World
from tests.share import in_share

# Elements whose text is a machine's: names, commands, log lines, policies.
MACHINE_TAGS = {"script", "style", "pre", "code", "kbd", "textarea", "title"}
MACHINE_CLASSES = {"mono", "brand", "crumbs"}
SHARES = 2  # a run reads half of the pages
BLOCKED = "169.254.169.254"  # nothing is sent there
VOID_TAGS = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "use", "rect"}

ATTRIBUTES = ("aria-label", "title", "placeholder", "alt")
# Examples of what a field takes, and Autopilot's word for a node that did not answer.
EXAMPLES = {"例如 90 s、5 min、1 h 30 min 或 7 d。", "cluster/name", "pool=a100, zone=b", autopilot.NO_ANSWER}
WORD = re.compile(r"[A-Za-z][A-Za-z.'-]+|(?<=\d )(?:d|h|s)\b")
# Names and codes that a Chinese reader knows as they are.
KNOWN = {
    *(
        "kcover",
        "portal",
        "kcoverportal",
        "NVIDIA",
        "Kubernetes",
        "Autopilot",
        "DCGM",
        "dcgm",
        "KCE",
        "Konduktor",
        "MetaX",
        "NVSentinel",
        "gpud",
        "Slack",
        "Mattermost",
        *("Mon-Fri", "Sat-Sun", "Mon", "Fri", "Sat", "Sun", "Asia", "Shanghai"),
    ),
    *(
        "Rocket.Chat",
        "Microsoft",
        "Teams",
        "Lark",
        "PagerDuty",
        "Opsgenie",
        "Alertmanager",
        "Webhook",
        "webhook",
        "English",
        "SQLite",
        "PostgreSQL",
    ),
    *(
        "GPU",
        "GPUs",
        "Xid",
        "Agent",
        "SLA",
        "xid",
        "SXid",
        "UUID",
        "UID",
        "PCI",
        "CPU",
        "ECC",
        "Pod",
        "Job",
        "PDB",
        "API",
        "REST",
        "HTTP",
        "MTTR",
    ),
    *("remapped", "gpumem", "gpupower", "pciebw", "iperf", "ping", "pvc", "KEY", "Events", "v2", "sqlite"),
    *("DRAM", "SRAM", "NVLink", "NVSwitch", "PCIe", "MMU", "GPC", "TPC", "SM", "Fabric", "Manager"),
    "system",  # the portal as an actor, as in the audit log
    *("YAML", "JSON", "CSV", "Lines", "Ctrl", "curl", "UTC", "MiB", "KB", "MB", "GB", "ID"),
    *("RescuePolicy", "WarmStandbyPolicy", "server", "cluster", "pool", "label", "preflight", "key", "value"),
    *("kcover.io", "notify", "standby", "true", "enableWarmStandby", "exclude", "dmesg", "journalctl"),
    *("nvidia-bug-report", "all-reduce"),
    *("light", "full", "burn-in"),  # validation profiles
    *("Prometheus", "Kueue", "code", "min"),  # in the help of a policy's attributes: <code>, 20min
}
HERE = {
    # names of parts of GPUs, in the suggestions of codes
    *("JPEG", "Grace", "CPU", "SPI", "CUDA", "SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE", "PCI", "Express"),
    *("SEC", "DMA", "kubelet", "zzz"),
    *("decision", "mode", "external"),  # decision_mode external
    "gpu",
    "faults",
    "ann",
    "bob",
    "root",
    "gated",
    "host",
    "train",
    *("worker", "web", "live", "watch", "kubeconfig"),
    "on-call",
    "ops",
    "ml",
    "job",
    "test",
    "call",
}


class Visible(HTMLParser):
    """Collects the texts and attributes of a page that a person sees or hears."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.skipped: list[bool] = [False]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = set((given.get("class") or "").split())
        skip = (
            self.skipped[-1]
            or tag in MACHINE_TAGS
            or bool(classes & MACHINE_CLASSES)
            or (given.get("lang") or "").startswith("en")
        )
        if not skip:
            self.texts += [given[name] or "" for name in given if name in ATTRIBUTES or name.startswith("data-say")]
        if tag not in VOID_TAGS:
            self.skipped.append(skip)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID_TAGS:
            self.skipped.pop()

    def handle_data(self, data: str) -> None:
        if not self.skipped[-1] and data.strip():
            self.texts.append(data.strip())


def english(page: str) -> list[str]:
    """The texts of a page that have English words in them."""
    reader = Visible()
    reader.feed(page)
    texts = [
        re.sub(
            r"{\w+}|https?://\S+|\b[0-9a-f-]{32,64}\b|\b(?:policy|user|token):\S+|KCOVER_[A-Z_]+|manage\.py [a-z ]+",
            "",
            text,
        )
        for text in reader.texts
    ]
    return [text for text in texts if text not in EXAMPLES and any(not known(word) for word in WORD.findall(text))]


def known(word: str) -> bool:
    parts = re.split(r"[-./]", word.strip(".'-"))
    return word.strip(".'-") in KNOWN | HERE or all(part in KNOWN | HERE or len(part) < 2 for part in parts)


@pytest.fixture
def site(db: None) -> Iterator[tuple[World, Client]]:
    """A site with something on every page, and an admin who reads Chinese."""
    world = World(policy=GATED % 1, nodes=4)
    world.now = timezone.now()
    for number in range(1, 5):
        world.report(node=f"gpu-{number}")
    world.kube.add_pod("train", "worker-0", node="gpu-1")
    world.fault(62)
    world.fault(95, node="gpu-2")
    world.work()
    nodes = node_selection.nodes(world.cluster)
    run = check_runs.begin(world.cluster, nodes, checks=("remapped",), actor="user:ann", now=world.now, batch=2)
    check_runs.advance(run.pk, now=world.now)
    answer(world, "gpu-1", FINE)
    gpus = node_selection.nodes(world.cluster, hosts=["gpu-3"])
    validations.begin(world.cluster, gpus, profile="light", actor="user:ann", now=world.now)
    for number in range(1, 5):
        receive(world, raw(number, failed={(0, 1), (1, 4), (2, 3)} if number == 2 else set()))
    pair_tests(world)
    incidents.keep_storm(
        world.cluster, guards.Symptom(trait="code", kind="xid", value="62", nodes=1), nodes=["gpu-3"], now=world.now
    )
    given = {"url": "https://hooks.example/T0/x", "secret": "a secret of some length"}
    channel = notify.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="user:ann", now=world.now)
    notify.make_route(channel, kinds=["rescue.failed"], cluster=None, least="", actor="user:ann", now=world.now)
    notify.test(channel, actor="user:ann", now=world.now)
    cluster_settings.set_guards(world.cluster, {"budget": {"limit": 3}}, actor="user:ann", reason="测试", now=world.now)
    repairs.report(world.node("gpu-1"), part=Part(kind="gpu"), actor="user:ann", reason="测试", now=world.now)
    place_part(world)
    services.request(world.node("gpu-4"), "cordon", actor="user:ann", reason="测试", now=world.now)
    world.work()
    explain(world)
    silence(world)
    user = User.objects.create_superuser("root", password=PASSWORD, language="zh-hans")
    client = Client(headers={"Accept-Language": "zh-hans"})
    client.force_login(user)
    yield world, client
    world.uninstall()


def explain(world: World) -> None:
    """Adds what the portal explains by itself: a failed delivery, a silent agent and decider, a rescue of its own."""
    given = {"url": f"http://{BLOCKED}/x", "secret": "a secret of some length"}
    channel = notify.CHANNELS.make(Channel(name="ops", kind="webhook"), given, actor="user:ann", now=world.now)
    notify.send(notify.test(channel, actor="user:ann", now=world.now).pk, clock=world.clock)
    agent = Agent.objects.filter(node=world.node("gpu-3"))
    agent.update(seen_at=world.now - timedelta(hours=1))
    nodes = node_selection.nodes(world.cluster, hosts=["gpu-3"])
    run = check_runs.begin(world.cluster, nodes, checks=("remapped",), actor="user:ann", now=world.now)
    check_runs.advance(run.pk, now=world.now)
    agent.update(seen_at=world.now)
    Cluster.objects.update(decision_url=f"http://{BLOCKED}/x", decision_mode="external", decision_fallback="hold")
    world.cluster.refresh_from_db()
    world.fault(48, node="gpu-3")
    services.decide_and_run([Incident.objects.get(code="48").pk], clock=world.clock)
    because = reasons.of("uncordoned_by_hand", node="gpu-3")
    services.request(
        world.node("gpu-3"), "cordon", actor="system", because=because, now=world.now, requester=Rescue.Requester.SYSTEM
    )
    codes = {
        *(code_of(row.because) for row in Delivery.objects.all()),
        *(code for row in Decision.objects.all() for one in row.reasons for code in codes_of(one)),
        *(code_of(row.note) for row in CheckTarget.objects.all()),
        *(code_of(row.opened_because) for row in Rescue.objects.all()),
    }
    assert {"address_blocked", "external_silent", "agent_not_reporting", "uncordoned_by_hand"} <= codes


def pair_tests(world: World) -> None:
    """Adds a finished plan of pair tests with a test of each state."""
    Cluster.objects.filter(pk=world.cluster.pk).update(nccl_image="pytorch:2")
    world.cluster.refresh_from_db()
    nodes = node_selection.nodes(world.cluster, hosts=[f"gpu-{number}" for number in range(1, 5)])
    plan = pair_plans.begin(world.cluster, nodes, pair_plans.Wish(), actor="user:ann", now=world.now)
    because = reasons.of("pair_node_not_ready", node="gpu-4").to_json()
    for state, test in zip(PairTest.State.values, plan.tests.all(), strict=False):
        error = because if state == PairTest.State.ERROR else {}
        PairTest.objects.filter(pk=test.pk).update(state=state, best=None if error else 480, because=error)
    PairPlan.objects.update(slow=["gpu-2"], inconclusive=["gpu-4"], state=PairPlan.State.FINISHED)


def silence(world: World) -> None:
    """Adds incidents that the portal opens itself: a slow node of a preflight, and a silent agent."""
    preflight.report_verdicts(now=world.now)
    because = reasons.of("agent_silent", since=reasons.moment(world.now))
    seen = incidents.PortalFault(kind="agent", code="silent", because=because, source="portal")
    incidents.keep_fault(world.node("gpu-4"), seen, boot_id="b", now=world.now)


def own_incidents() -> list[Incident]:
    """The incidents that the portal opened itself, apart from storms."""
    return list(Incident.objects.exclude(because={}).filter(node__isnull=False).select_related("node").order_by("pk"))


def place_part(world: World) -> None:
    """A GPU in a node, flagged, with a fault and a repair."""
    node = world.node("gpu-1")
    part = HardwarePart.objects.create(kind="gpu", serial="1652", first_seen_at=world.now)
    where = {"part": part, "cluster": node.cluster, "node": node, "node_name": node.name, "slot": "0000:4e:00"}
    flag = reasons.of("part_on_two_nodes", serial="1652").to_json()
    Placement.objects.create(since=world.now, doubt="conflict", flags=[flag], flagged_at=world.now, **where)


def pages() -> list[str]:
    place = Placement.objects.get()
    incident = Incident.objects.filter(node__isnull=False, because={}).latest("pk").pk
    storm, rescue = Incident.objects.get(node=None).pk, Rescue.objects.earliest("pk").pk
    own, silent = Rescue.objects.latest("pk").pk, CheckRun.objects.latest("pk").pk
    repair = Repair.objects.get().pk
    run, preflight = CheckRun.objects.earliest("pk").pk, PreflightRun.objects.get().pk
    return [
        *(
            "/",
            "/wall/",
            "/trends/",
            "/map/",
            "/nodes/",
            "/nodes/c1/gpu-1/",
            "/nodes/c1/gpu-3/",
            "/nodes/c1/gpu-2/drain/",
        ),
        *(
            "/incidents/",
            f"/incidents/{incident}/",
            f"/incidents/{storm}/",
            f"/incidents/{storm}/close/",
            "/occurrences/",
        ),
        *("/decisions/", "/incidents/log/", "/rescues/", f"/rescues/{rescue}/", f"/rescues/{rescue}/approve/"),
        *(f"/rescues/{own}/", f"/checks/{silent}/"),
        *("/parts/", f"/parts/{place.part_id}/", f"/parts/{place.part_id}/review/{place.pk}/"),
        *("/repairs/", f"/repairs/{repair}/", f"/repairs/{repair}/accept/", f"/repairs/{repair}/refuse/"),
        *(f"/repairs/{repair}/change/", "/repairs/new/c1/gpu-2/", "/repairs/?state=closed"),
        *(
            "/approvals/",
            f"/approvals/{rescue}/link/",
            f"/approvals/{rescue}/pods/",
            "/policies/",
            "/policies/winners/",
            "/policy-packs/",
            "/policy-packs/first/",
            "/policies/gated/",
        ),
        *("/policies/edit/", "/policies/gated/edit/", "/policies/gated/archive/", "/standbys/", "/checks/"),
        *(
            f"/checks/{run}/",
            "/checks/new/",
            "/checks/validations/",
            "/checks/validations/new/",
            "/checks/profiles/light/",
            f"/checks/validations/{Validation.objects.get().pk}/",
            "/preflight/",
            f"/preflight/{preflight}/",
            "/preflight/plans/",
            "/preflight/plans/new/",
            f"/preflight/plans/{PairPlan.objects.get().pk}/",
        ),
        *("/safety/", "/safety/c1/mode/", "/safety/c1/guards/budget/", "/safety/c1/guards/storm/", "/maintenance/new/"),
        *("/notifications/", "/notifications/new/slack/", "/notifications/new/pagerduty/", "/notifications/new/mail/"),
        "/notifications/new/alertmanager/",
        *("/notifications/channels/on-call/", "/notifications/routes/new/", "/audit/", "/system/", "/access/"),
        *("/account/", "/account/password/"),
        *(f"/incidents/{row.pk}/" for row in own_incidents()),
        *("/access/tokens/new/", "/access/users/new/", "/pause/", "/nodes/?q=zzz", "/nowhere/"),
    ]


def test_a_chinese_page_has_no_english_words(site: tuple[World, Client]) -> None:
    _world, client = site
    found = {}
    for path in (path for number, path in enumerate(pages()) if in_share(number, shares=SHARES)):
        if wrong := english(client.get(path).content.decode()):
            found[path] = sorted(set(wrong))
    assert found == {}


def test_a_message_of_the_portal_is_chinese_on_each_page(site: tuple[World, Client]) -> None:
    _world, client = site
    rows = own_incidents()
    assert {code_of(row.because) for row in rows} == {"agent_silent", "preflight_flagged"}
    occurrences = client.get("/occurrences/").content.decode()
    for row in rows:
        assert row.node is not None
        with translation.override("zh-hans"):
            chinese = localization.stored(row.because)
        node = client.get(f"/nodes/c1/{row.node.name}/").content.decode()
        for page in (client.get(f"/incidents/{row.pk}/").content.decode(), node, occurrences):
            assert chinese in page
            assert row.message not in page
