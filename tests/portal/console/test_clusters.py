"""Adding a cluster by page: the test of its access, what a pasted kubeconfig may not do, and what follows."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import yaml
from django.db.models import signals

from kcover import reasons
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import kubeconfig as kubeconfig_texts
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.services import concurrency_limits
from tests.portal.console.conftest import Person
from tests.simulator import api_server

PAGE = "/clusters/new/"
SECRET = "a-secret-of-the-network"


def kubeconfig(server: str, *, token: str = api_server.ADMIN_TOKEN, user: Any = None, **cluster: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": {"token": token} if user is None else user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
    )


def given(text: str, **more: str) -> dict[str, str]:
    return {"name": "west", "kubeconfig": text, "mode": "shadow", "test": "1", **more}


@pytest.fixture
def server() -> Iterator[api_server.ApiServer]:
    with api_server.ApiServer() as made:
        for number in range(3):
            made.put("Node", api_server.node(f"gpu-{number}"))
        yield made


@contextmanager
def another_service(status: int) -> Iterator[str]:
    """A service of the network that is no API server and answers with a secret."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status, SECRET)
            self.end_headers()
            self.wfile.write(f'{{"message": "{SECRET}", "reason": "{SECRET}"}}'.encode())

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def test_a_cluster_is_tested_then_added_and_its_kubeconfig_is_on_no_page(
    person: Person, server: api_server.ApiServer
) -> None:
    admin = person("admin", name="root")
    text = kubeconfig(server.url)
    assert admin.get(PAGE).status_code == 200
    page = admin.post(PAGE, given(text))
    access = page.context["access"]
    assert (access.unreachable, access.nodes, access.usable, access.manifests) == (None, 3, True, [])
    assert api_server.ADMIN_TOKEN not in page.content.decode()
    assert not Cluster.objects.exists()
    fragment = admin.post(PAGE, given(text), headers={"HX-Request": "true"}).content.decode()
    assert 'form="cluster-form"' in fragment
    assert "<html" not in fragment
    added = admin.post(PAGE, given(text, add="1"))
    assert added.headers["Location"] == "/clusters/west/next/"
    row = Cluster.objects.get()
    assert (row.name, row.mode, row.context) == ("west", "shadow", "c")
    assert queries.connect(row).count_nodes() == 3
    shown = admin.get("/clusters/west/next/")
    assert shown.context["progress"].policies is False
    assert api_server.ADMIN_TOKEN not in shown.content.decode()
    verbs = list(Entry.objects.filter(cluster="west").order_by("pk").values_list("verb", "actor"))
    assert verbs == [("cluster.tested", "user:root")] * 3 + [("cluster.added", "user:root")]
    assert api_server.ADMIN_TOKEN not in str(list(Entry.objects.values_list("data", flat=True)))
    assert admin.post(PAGE, given(text)).context["form"].errors.keys() == {"name"}
    assert admin.get("/access/tokens/new/?kind=agent&cluster=west").context["form"].initial["cluster"] == "west"


def test_a_name_that_another_process_has_just_taken_is_refused(
    person: Person, server: api_server.ApiServer, now: datetime
) -> None:
    def overtake(instance: Cluster, **_: Any) -> None:
        Cluster.objects.bulk_create([Cluster(name=instance.name, created_at=now)])

    signals.pre_save.connect(overtake, sender=Cluster)
    try:
        page = person("admin").post(PAGE, given(kubeconfig(server.url), add="1"))
    finally:
        signals.pre_save.disconnect(overtake, sender=Cluster)
    assert page.status_code == 422
    assert "at the same time" in page.context["form"].errors["__all__"][0]
    assert not Entry.objects.filter(verb="cluster.added").exists()


def test_missing_rights_are_named_by_feature_with_the_files_that_grant_them(
    person: Person, server: api_server.ApiServer
) -> None:
    page = person("admin").post(PAGE, given(kubeconfig(server.url, token=api_server.READER_TOKEN)))
    access = page.context["access"]
    states = {one.feature.name: key for key, one in page.context["lacking"]}
    assert "watch" in {one.feature.name for one in page.context["granted"]}
    assert (states["mark"], states["karpenter"]) == ("lacking", "optional")
    assert access.manifests == ["deploy/rbac.yaml", "deploy/machines.yaml", "deploy/action-lease.yaml"]
    assert access.usable
    [missing] = [one.missing for one in access.features if one.feature.name == "evict"]
    assert list(map(str, missing)) == ["create pods/eviction"]
    assert Entry.objects.get(verb="cluster.tested").data["reached"] is True


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"user": {"exec": {"command": "sh", "args": ["-c", "id"]}}}, "exec"),
        ({"user": {"tokenFile": "/etc/shadow"}}, "tokenFile"),
        ({"user": {"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}}}, "auth-provider"),
        ({"user": {"client-certificate": "/etc/passwd", "client-key": "/etc/passwd"}}, "client-certificate"),
        ({"certificate-authority": "/etc/passwd"}, "certificate-authority"),
        ({"proxy-url": "http://169.254.169.254"}, "proxy-url"),
        ({"user": {}}, "neither a token"),
        ({"user": {"token": {"a": "b"}}}, "token is not text"),
        ({"user": {"token": "s3cret\n"}}, "token of the user has a line break"),
        ({"user": {"token": "s3crét"}}, "character outside ASCII"),
        ({"tls-server-name": True}, "tls-server-name is not text"),
        ({"tls-server-name": "a\0b"}, "tls-server-name of the cluster has"),
        ({"insecure-skip-tls-verify": "false"}, "neither true nor false"),
        ({"server": "https://root:s3cret@10.0.0.1"}, "without credentials"),
        ({"server": "https://10.0.0.1/?token=s3cret"}, "without credentials"),
        ({"server": "https://10.0.0.1/#s3cret"}, "without credentials"),
    ],
)
def test_a_pasted_kubeconfig_runs_no_program_and_reads_no_file(
    changes: dict[str, Any], code: str, person: Person, server: api_server.ApiServer, settings: Any
) -> None:
    settings.KCOVER_KUBECONFIG_COMMANDS = ["sh", "/etc/shadow", "/etc/passwd"]  # what operators of the host allow
    page = person("admin").post(PAGE, given(kubeconfig(**{"server": server.url, **changes}), add="1"))
    assert page.status_code == 422
    assert code in page.context["form"].errors["kubeconfig"][0]
    assert "s3cr" not in page.content.decode()
    assert not Cluster.objects.exists()
    assert not Entry.objects.filter(verb="cluster.tested").exists()
    assert server.do(server.api.calls.recent) == []


BOMB = "a: &a {b: c}\n" + "".join(
    f"{n}: &{m} {{<<: [*{o}, *{o}, *{o}]}}\n" for n, m, o in zip(range(9), "bcdefghij", "abcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kind: Config\na: &a b\n", 2),
        (BOMB, 1),
        *(
            (f"kind: Config\ns3cret: !!{tag}\n", 2)
            for tag in ("bool x", "int ''", "timestamp x", "python/name:os.system")
        ),
        ("\n" + "[" * 200_000, 2),
        ("\n[" + "a," * 60_000 + "]", 2),
    ],
    ids=range(8),
)
def test_yaml_that_costs_more_than_it_is_worth_is_refused(text: str, line: int) -> None:
    with pytest.raises(kubeconfig_texts.KubeconfigInvalid) as refused:
        kubeconfig_texts.read_pasted(text)
    assert refused.value.reason == reasons.of("kubeconfig_yaml_refused", line=line)


def test_plain_values_are_text_whatever_yaml_takes_them_for() -> None:
    text = kubeconfig("https://10.0.0.1", token="0").replace("'0'", "1:" * 100_000 + "1")
    read = yaml.safe_load(kubeconfig_texts.read_pasted(text).text)
    assert read["users"][0]["user"]["token"] == "1:" * 100_000 + "1"


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::ffff:169.254.169.254]", "metadata.invalid"])
def test_addresses_that_trust_this_machine_are_not_called(
    host: str, person: Person, server: api_server.ApiServer, settings: Any, now: datetime
) -> None:
    settings.KCOVER_OUTGOING_HOSTS = []
    text = kubeconfig(f"http://{host}:{server.url.rpartition(':')[2]}")
    page = person("admin").post(PAGE, given(text, add="1"))
    blocked = "host_without_address_because" if "invalid" in host else "address_blocked"
    assert page.context["access"].unreachable.code == blocked
    assert not Cluster.objects.exists()
    assert Entry.objects.get(verb="cluster.tested").data["reached"] is False
    assert server.do(server.api.calls.recent) == []


def test_the_server_of_a_stored_kubeconfig_is_checked_at_each_connection(
    person: Person, server: api_server.ApiServer, settings: Any
) -> None:
    person("admin").post(PAGE, given(kubeconfig(server.url), add="1"))
    settings.KCOVER_OUTGOING_HOSTS = []
    with pytest.raises(port.Unavailable):
        queries.connect(Cluster.objects.get()).version()


@pytest.mark.parametrize(("status", "code"), [(200, "cluster_not_kubernetes"), (500, "cluster_status")])
def test_the_response_of_another_service_is_not_shown(status: int, code: str, person: Person) -> None:
    with another_service(status) as url:
        page = person("admin").post(PAGE, given(kubeconfig(url)))
    assert page.context["access"].unreachable.code == code
    assert SECRET not in page.content.decode()
    assert SECRET not in str(Entry.objects.get(verb="cluster.tested").data)


@pytest.mark.parametrize(
    ("token", "url", "code"),
    [("wrong", "", "cluster_credentials_refused"), ("x", "http://127.0.0.1:1", "cluster_not_connected")],
)
def test_the_reason_why_a_server_is_unreachable_is_shown(
    token: str, url: str, code: str, person: Person, server: api_server.ApiServer
) -> None:
    page = person("admin").post(PAGE, given(kubeconfig(url or server.url, token=token), add="1"))
    assert page.context["access"].unreachable.code == code
    assert not Cluster.objects.exists()


def test_only_admins_of_all_clusters_add_one_and_test_one_at_a_time(
    person: Person, server: api_server.ApiServer, now: datetime
) -> None:
    east = Cluster.objects.create(name="east", created_at=now)
    for someone in (person("approver"), person("admin", cluster=east)):
        assert someone.get(PAGE).status_code == 403
        assert someone.post(PAGE, given(kubeconfig(server.url))).status_code == 403
        assert f'href="{PAGE}"' not in someone.get("/system/").content.decode()
        assert someone.get("/clusters/east/next/").status_code == 200
    admin = person("admin")
    assert f'href="{PAGE}"' in admin.get("/system/").content.decode()
    key = f"user:{admin.session['_auth_user_id']}"
    with concurrency_limits.held(concurrency_limits.ACCESS_TESTS, key):
        assert admin.post(PAGE, given(kubeconfig(server.url))).status_code == 429
        assert admin.post(PAGE, given("a: [")).status_code == 429  # parsing needs the place, too
    assert server.do(server.api.calls.recent) == []


def test_the_rights_of_a_registered_cluster_are_tested_on_its_page(
    person: Person, server: api_server.ApiServer, settings: Any, now: datetime
) -> None:
    text = kubeconfig(server.url, token=api_server.READER_TOKEN)
    east = Cluster.objects.create(name="east", created_at=now, kubeconfig=text, job_namespace="our-jobs")
    Cluster.objects.create(name="west", created_at=now, kubeconfig=kubeconfig("http://127.0.0.1:1"))
    admin = person("admin", name="ada", cluster=east)
    assert 'hx-post="/clusters/east/test/"' in admin.get("/clusters/east/next/").content.decode()
    for client, status in ((person("viewer", cluster=east), 403), (person("approver"), 403)):
        assert 'hx-post="/clusters/east/test/"' not in client.get("/clusters/east/next/").content.decode()
        assert client.post("/clusters/east/test/").status_code == status
    assert admin.post("/clusters/west/test/").status_code == 404
    assert not Entry.objects.filter(verb="cluster.tested").exists()

    page = admin.post("/clusters/east/test/")
    access = page.context["access"]
    assert (access.unreachable, access.nodes, access.usable) == (None, 3, True)
    states = {one.feature.name: key for key, one in page.context["lacking"]}
    assert (states["mark"], states["karpenter"]) == ("lacking", "optional")
    [jobs] = [one for one in access.features if one.feature.name == "rebootJob"]
    assert {right.namespace for right in jobs.missing} == {"our-jobs"}
    fragment = admin.post("/clusters/east/test/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in fragment
    assert 'name="add"' not in fragment
    assert api_server.READER_TOKEN not in page.content.decode() + fragment

    settings.KCOVER_CLUSTER_ACCESS = "read"  # as web has it: no rights of the engine are asked for
    east.read_kubeconfig = text
    east.save()
    features = admin.post("/clusters/east/test/").context["access"].features
    assert {one.feature.name for one in features} < {one.feature.name for one in access.features}
    assert not any(right.verb == "patch" for one in features for right in one.feature.rights)

    root = person("admin", name="root")
    assert root.post("/clusters/west/test/").context["access"].unreachable.code == "cluster_not_connected"
    with concurrency_limits.held(concurrency_limits.ACCESS_TESTS, f"user:{root.session['_auth_user_id']}"):
        assert root.post("/clusters/west/test/").status_code == 429
    tested = Entry.objects.filter(verb="cluster.tested").order_by("pk").values_list("cluster", "actor", "data__reached")
    assert list(tested) == [("east", "user:ada", True)] * 3 + [("west", "user:root", False)]
