"""The kernel log around a fault, from the evidence of its rescue."""

import io

from kcover.evidence.bundle import Section, Writer
from kcover_portal.evidence.models import Bundle, Chunk
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from tests.portal.rescue.world import World

LINE = "NVRM: Xid (PCI:0000:18:00): 62, pid=1"


def keep_evidence(world: World, rescue: int) -> Bundle:
    file = io.BytesIO()
    writer = Writer(file)
    writer.add(Section(name="kernel log", status="ok"), ["before the fault", f"[9.0] {LINE}", "after the fault"])
    writer.close()
    made = Bundle.objects.create(
        node=world.node(), rescue=rescue, number=7, state="kept", requested_at=world.now, sha256="0" * 64, size=1
    )
    Chunk.objects.create(bundle=made, offset=0, data=file.getvalue())
    return made


def test_the_log_around_a_fault_is_read_from_the_evidence_and_recorded(world: World, person):
    world.fault()
    world.work()
    incident, rescue = Incident.objects.get(), world.rescue()
    Incident.objects.update(message=LINE)
    page, address = f"/incidents/{incident.pk}/", f"/incidents/{incident.pk}/log/"
    client = person("viewer", name="vera")
    assert address not in client.get(page).content.decode()
    assert client.get(address).status_code == 404
    keep_evidence(world, rescue.pk)
    assert f'hx-get="{address}"' in client.get(page).content.decode()
    found = client.get(address)
    assert [(line.text, line.hit) for line in found.context["lines"]] == [
        *(("before the fault", False), (f"[9.0] {LINE}", True), ("after the fault", False), ("", False)),
    ]
    assert f"<mark>[9.0] {LINE}</mark>" in found.content.decode()
    entry = Entry.objects.get(verb="evidence.read")
    assert (entry.actor, entry.node, entry.data["number"]) == ("user:vera", "gpu-1", 7)
    Incident.objects.update(message="something else")
    assert client.get(address).context["lines"] == []
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer", cluster=other).get(address).status_code == 404
