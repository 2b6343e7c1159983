"""What became of earlier rescues about a fault, on its page; and what has changed since a rescue, on the rescue's."""

from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from tests.portal.rescue.world import HEAL, World


def remedies(response) -> list[tuple[str, int, int, int]]:
    return [(str(one.label), one.rescues, one.verified, one.returned) for one in response.context["remedies"]]


def test_an_incident_shows_the_outcomes_of_earlier_rescues(world: World, person):
    world.fault()
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    client = person("viewer")
    first = f"/incidents/{Incident.objects.get().pk}/"
    assert remedies(client.get(first)) == [("Reboot", 1, 1, 0)]
    assert "What this fleet saw" in client.get(first).content.decode()
    world.pass_time(60)
    world.fault()
    again = Incident.objects.order_by("-pk").first()
    assert remedies(client.get(f"/incidents/{again.pk}/")) == [("Reboot", 1, 1, 1)]
    world.fault(79)
    other = Incident.objects.get(code="79")
    assert "What this fleet saw" not in client.get(f"/incidents/{other.pk}/").content.decode()
    elsewhere = Cluster.objects.create(name="c2", created_at=world.now)
    assert person("viewer", cluster=elsewhere).get(first).status_code == 404


def test_a_verified_rescue_links_to_later_changes_of_its_policy(world: World, person):
    world.fault()
    world.until_reboot_is_asked()
    world.reboot()
    rescue = world.until("succeeded")
    client = person("viewer")
    link = f"/policies/heal/diff/?from={rescue.revision}&amp;to={rescue.revision + 1}"
    assert link not in client.get(f"/rescues/{rescue.pk}/").content.decode()
    policies.apply(HEAL.replace("10min", "30min"), author="test", reason="", now=world.now)
    assert link in client.get(f"/rescues/{rescue.pk}/").content.decode()
    assert client.get(link.replace("&amp;", "&")).status_code == 200
    verified = client.get("/rescues/?tab=verified")
    assert [row["rescue"] for row in verified.context["rows"]] == [rescue]
    assert "verified=true" in verified.context["found"].rest_query
