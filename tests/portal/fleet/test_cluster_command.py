"""``manage.py cluster``: a kubeconfig becomes independent of its machine; errors in a kubeconfig are reported."""

import base64
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError

from kcover import reasons
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import kubeconfig_rules, port
from kcover_portal.ledger.models import Entry
from tests.contract import scripted
from tests.simulator import api_server

pytestmark = pytest.mark.django_db

NOBODY, ELSEWHERE = "http://127.0.0.1:1", "http://127.0.0.1:2"
GPUS = ({"nvidia.com/gpu": "8"}, {}, {"nvidia.com/gpu": "4"})


def run(*words: str) -> tuple[str, str]:
    """What was said, and what was warned of beside clusters that do not answer: most of them here are none."""
    said, warned = run_all(*words)
    return said, "".join(line for line in warned.splitlines(keepends=True) if " cannot be reached: " not in line)


def run_all(*words: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("cluster", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def config(**changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [
            {"name": "c1", "cluster": {"server": NOBODY}},
            {"name": "c2", "cluster": {"server": ELSEWHERE}},
        ],
        "users": [{"name": "u1", "user": {"token": "secret-1"}}, {"name": "u2", "user": {"token": "secret-2"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c1", "user": "u1"}},
            {"name": "two", "context": {"cluster": "c2", "user": "u2"}},
        ],
    } | changes


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_a_cluster_is_registered_with_one_context_of_its_kubeconfig(kubeconfig: Path) -> None:
    said, warned = run("add", "east", "--kubeconfig", write(kubeconfig, config()), "--context", "two")
    assert said == "cluster east registered (mode enforce, reboot auto)\n"
    assert warned == ""
    row = Cluster.objects.get()
    assert (row.name, row.context, row.in_cluster, row.reboot) == ("east", "two", False, "auto")
    kept = yaml.safe_load(row.kubeconfig)
    assert kept["current-context"] == "two"
    assert [one["cluster"]["server"] for one in kept["clusters"]] == [ELSEWHERE]
    assert [one["user"] for one in kept["users"]] == [{"token": "secret-2"}]
    assert [one["name"] for one in kept["contexts"]] == ["two"]
    entry = Entry.objects.get()
    assert (entry.cluster, entry.verb, entry.subject) == ("east", "cluster.added", "cluster east")
    assert "secret" not in str(entry.data)


def test_the_current_context_is_the_default_and_so_is_the_only_one(kubeconfig: Path) -> None:
    run("add", "a", "--kubeconfig", write(kubeconfig, config()))
    assert Cluster.objects.get(name="a").context == "one"
    only = config(contexts=[{"name": "two", "context": {"cluster": "c2", "user": "u2"}}])
    del only["current-context"]
    run("add", "b", "--kubeconfig", write(kubeconfig, only))
    assert Cluster.objects.get(name="b").context == "two"


def test_files_that_a_kubeconfig_names_are_put_in(kubeconfig: Path, tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_bytes(name.encode())
    content = config(
        clusters=[{"name": "c1", "cluster": {"server": NOBODY, "certificate-authority": "ca.crt"}}],
        users=[
            {
                "name": "u1",
                "user": {"client-certificate": str(tmp_path / "me.crt"), "client-key": str(tmp_path / "me.key")},
            }
        ],
    )
    _, warned = run("add", "east", "--kubeconfig", write(kubeconfig, content))
    assert warned == "warning: certificate-authority ca.crt is relative; it was read from the kubeconfig's folder\n"
    kept = yaml.safe_load(Cluster.objects.get().kubeconfig)
    assert kept["clusters"][0]["cluster"] == {
        "server": NOBODY,
        "certificate-authority-data": base64.b64encode(b"ca.crt").decode(),
    }
    assert kept["users"][0]["user"] == {
        "client-certificate-data": base64.b64encode(b"me.crt").decode(),
        "client-key-data": base64.b64encode(b"me.key").decode(),
    }


def test_content_that_is_there_already_wins_over_a_file(kubeconfig: Path) -> None:
    cluster = {
        "server": NOBODY,
        "certificate-authority": "/nowhere",
        "certificate-authority-data": "QQ==",
    }
    run("add", "east", "--kubeconfig", write(kubeconfig, config(clusters=[{"name": "c1", "cluster": cluster}])))
    kept = yaml.safe_load(Cluster.objects.get().kubeconfig)["clusters"][0]["cluster"]
    assert kept == {"server": NOBODY, "certificate-authority-data": "QQ=="}


@pytest.mark.parametrize(
    ("user", "cluster", "warning"),
    [
        ({"exec": {"command": "aws"}}, {}, "the user's credentials come from the program aws"),
        ({"tokenFile": "/run/token"}, {}, "the token is read from /run/token"),
        ({}, {"insecure-skip-tls-verify": True}, "certificate is not verified"),
        ({}, {"server": "http://api.example.invalid"}, "plain HTTP"),
    ],
)
def test_settings_that_may_not_work_here_are_warned_about(
    user: dict[str, Any], cluster: dict[str, Any], warning: str, kubeconfig: Path, settings: Any
) -> None:
    settings.KCOVER_KUBECONFIG_COMMANDS = ["aws", "/run/token"]
    content = config(
        users=[{"name": "u1", "user": user}],
        clusters=[{"name": "c1", "cluster": {"server": NOBODY, **cluster}}],
    )
    _, warned = run("add", "east", "--kubeconfig", write(kubeconfig, content))
    assert warned.startswith("warning: ")
    assert warning in warned
    assert Cluster.objects.count() == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("just text", "is not a kubeconfig; clusters, contexts and users are required"),
        ({"contexts": [], "clusters": [], "users": []}, "contexts is missing or empty"),
        (config(clusters=None), "clusters is missing or empty"),
        (config(users=[]), "users is missing or empty"),
        (config(**{"current-context": ""}), "no current context; choose one of one, two"),
        (config(**{"current-context": "ten"}), "unknown context 'ten'; choose one of one, two"),
        (
            config(contexts=[{"name": "one", "context": {"cluster": "c9", "user": "u1"}}]),
            "context 'one' refers to cluster 'c9', which is not in the file",
        ),
        (
            config(contexts=[{"name": "one", "context": {"cluster": "c1"}}]),
            "context 'one' refers to user None, which is not in the file",
        ),
        (config(clusters=[{"name": "c1", "cluster": {"server": "10.0.0.1"}}]), "has no server"),
        (
            config(users=[{"name": "u1", "user": {"client-key": "/nowhere/me.key"}}]),
            "cannot read client-key /nowhere/me.key",
        ),
        ("#" * (1024 * 1024 + 1), "the limit is 1048576"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused(content: Any, message: str, kubeconfig: Path) -> None:
    with pytest.raises(CommandError, match=message):
        run("add", "east", "--kubeconfig", write(kubeconfig, content))
    assert Cluster.objects.count() == 0


def test_a_kubeconfig_that_is_not_there_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot read /nowhere: No such file"):
        run("add", "east", "--kubeconfig", "/nowhere")


def test_an_in_cluster_registration_needs_no_file_and_keeps_its_settings() -> None:
    words = ("--reboot", "job", "--job-image", "alpine:3", "--job-namespace", "ops", "--mode", "shadow")
    said, _ = run("add", "here", "--in-cluster", *words)
    assert said == "cluster here registered (mode shadow, reboot job)\n"
    row = Cluster.objects.get()
    assert (row.in_cluster, row.kubeconfig, row.job_image, row.job_namespace) == (True, "", "alpine:3", "ops")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "east"), "one of the arguments --kubeconfig --in-cluster is required"),
        (("add", "east", "--in-cluster", "--kubeconfig", "f"), "not allowed with"),
        (("add", "east", "--in-cluster", "--context", "c"), "--context requires --kubeconfig"),
        (("add", "east", "--in-cluster", "--reboot", "twice"), "unknown --reboot 'twice'; use one of auto, agent, job"),
        (("add", "east", "--in-cluster", "--mode", "fast"), "unknown --mode 'fast'; use one of paused, shadow"),
        (("add", "not a slug", "--in-cluster"), "name: Enter a valid"),
        (("add", "old", "--in-cluster"), "cluster old already exists; add --replace to change it"),
        (("remove", "mars", "--yes"), "unknown cluster mars; known clusters: old"),
        (("remove", "old"), "this deletes 1 nodes of old with their incidents, rescues and tokens"),
    ],
)
def test_an_invalid_cluster_command_names_its_error(words: tuple[str, ...], message: str, now: datetime) -> None:
    old = Cluster.objects.create(name="old", created_at=now)
    Node.objects.create(cluster=old, name="n", created_at=now)
    with pytest.raises(CommandError, match=message):
        run(*words)
    assert Cluster.objects.count() == 1


def test_replacing_a_cluster_keeps_settings_that_are_not_named(kubeconfig: Path) -> None:
    run("add", "east", "--in-cluster", "--mode", "approve", "--job-image", "alpine:3")
    run("add", "east", "--replace", "--kubeconfig", write(kubeconfig, config()), "--reboot", "agent")
    row = Cluster.objects.get()
    assert (row.in_cluster, row.context, row.mode, row.reboot, row.job_image) == (
        False,
        "one",
        "approve",
        "agent",
        "alpine:3",
    )
    assert list(Entry.objects.order_by("pk").values_list("verb", flat=True)) == ["cluster.added", "cluster.changed"]


def test_clusters_are_listed_and_removed(now: datetime) -> None:
    run("add", "east", "--in-cluster")
    broken = reasons.of("watch_failed", error="refused").to_json()
    Cluster.objects.create(name="west", context="w", created_at=now, watched_at=now, watch_error=broken)
    assert run("list")[0].splitlines() == [
        "east\tin-cluster\tmode enforce\treboot auto\tlast contact never",
        "west\tcontext w\tmode enforce\treboot auto\tlast contact 2026-11-21 08:00\tThe watch failed: refused",
    ]
    assert run("remove", "east", "--yes")[0] == "cluster east deleted\n"
    assert list(Cluster.objects.values_list("name", flat=True)) == ["west"]
    assert Entry.objects.latest("pk").verb == "cluster.removed"


def answering(request: scripted.Handler) -> None:
    named = [({"name": f"gpu-{index}", "uid": str(index)}, {"capacity": gpus}) for index, gpus in enumerate(GPUS)]
    nodes = [{"metadata": metadata, "status": status} for metadata, status in named]
    listed = {"metadata": {"resourceVersion": "7"}, "items": nodes}
    answers = {"/version": {"gitVersion": "v1.31.2"}, "/api/v1/nodes": listed}
    request.reply(200, answers[request.path.partition("?")[0]])


def test_a_cluster_that_answers_is_reported_with_its_version_and_nodes(kubeconfig: Path) -> None:
    with scripted.serve(answering) as server:
        clusters = [{"name": "c1", "cluster": {"server": server.url}}]
        said, warned = run_all("add", "east", "--kubeconfig", write(kubeconfig, config(clusters=clusters)))
    assert said.splitlines()[1:] == ["connected: Kubernetes v1.31.2, 3 nodes, 2 with GPUs"]
    assert warned == ""


@pytest.mark.parametrize(
    ("status", "message"), [(401, "Unauthorized"), (403, 'nodes is forbidden: cannot list "nodes"'), (500, "on fire")]
)
def test_a_cluster_that_refuses_is_registered_with_a_warning(status: int, message: str, kubeconfig: Path) -> None:
    with scripted.serve(lambda request: request.reply(status, {"code": status, "message": message})) as server:
        clusters = [{"name": "c1", "cluster": {"server": server.url}}]
        said, warned = run_all("add", "east", "--kubeconfig", write(kubeconfig, config(clusters=clusters)))
    assert said == "cluster east registered (mode enforce, reboot auto)\n"
    assert warned.startswith("warning: east cannot be reached: GET /version: ")
    assert message in warned
    assert "to change the access: cluster add east --replace" in warned
    assert Cluster.objects.get().name == "east"


def test_a_cluster_that_is_not_there_is_registered_with_a_warning(kubeconfig: Path) -> None:
    _, warned = run_all("add", "east", "--kubeconfig", write(kubeconfig, config()))
    assert warned.startswith("warning: east cannot be reached: GET /version: ")
    _, warned = run_all("add", "here", "--in-cluster")
    assert warned.startswith("warning: here cannot be reached: ")
    assert Cluster.objects.count() == 2


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "sh", "args": ["-c", "id"]}},
        {"exec": "sh"},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh"}}},
        {"tokenFile": "/etc/shadow"},
    ],
)
def test_programs_and_files_are_refused_unless_they_are_allowed(user: dict[str, Any], kubeconfig: Path) -> None:
    content = config(users=[{"name": "u1", "user": user}])
    with pytest.raises(CommandError, match=r"KCOVER_KUBECONFIG_COMMANDS|auth-provider|service account's token"):
        run("add", "east", "--kubeconfig", write(kubeconfig, content))
    assert not Cluster.objects.exists()


@pytest.mark.parametrize(
    ("cluster", "user", "code"),
    [
        ({"proxy-url": "socks5://10.0.0.1:1080"}, {}, "kubeconfig_proxy"),
        ({"proxy-url": "http://"}, {}, "kubeconfig_proxy"),
        ({"proxy-url": {"a": "b"}}, {}, "kubeconfig_proxy"),
        ({"tunnel": "ssh://10.0.0.1"}, {}, "kubeconfig_field_unsupported"),
        ({}, {"as": "somebody"}, "kubeconfig_field_unsupported"),
        ({}, {"as-groups": ["admins"]}, "kubeconfig_field_unsupported"),
        ({"proxy-url": "http://10.0.0.1:3128", "tls-server-name": "api"}, {"as": ""}, ""),
    ],
)
def test_connection_settings_that_the_portal_ignores_are_refused(
    cluster: dict[str, Any], user: dict[str, Any], code: str
) -> None:
    document = {
        "clusters": [{"name": "c1", "cluster": {"server": "https://10.0.0.1", **cluster}}],
        "users": [{"name": "u1", "user": {"token": "x", **user}}],
    }
    assert [problem.code for problem in kubeconfig_rules.problems(document)] == ([code] if code else [])


def test_a_program_that_is_not_text_cannot_be_allowed() -> None:
    [problem] = kubeconfig_rules.problems({"users": [{"user": {"exec": {"command": {"a": "b"}}}}]})
    assert problem.code == "kubeconfig_program_not_text"


def test_a_stored_kubeconfig_that_runs_a_program_is_not_used(now: datetime) -> None:
    text = yaml.safe_dump(config(users=[{"name": "u1", "user": {"exec": {"command": "sh"}}}]))
    cluster = Cluster.objects.create(name="east", created_at=now, kubeconfig=text)
    with pytest.raises(port.RefusedByServer, match="KCOVER_KUBECONFIG_COMMANDS"):
        queries.connect(cluster)


@pytest.mark.parametrize(("token", "code"), [(api_server.ADMIN_TOKEN, 0), (api_server.READER_TOKEN, 0), ("wrong", 1)])
def test_check_names_missing_rights_as_the_page_does(token: str, code: int, kubeconfig: Path) -> None:
    with api_server.ApiServer() as server:
        server.put("Node", api_server.node("gpu-1"))
        clusters = [{"name": "c1", "cluster": {"server": server.url}}]
        users = [{"name": "u1", "user": {"token": token}}]
        run_all("add", "east", "--kubeconfig", write(kubeconfig, config(clusters=clusters, users=users)))
        if code:
            with pytest.raises(CommandError, match=r"rejects the credentials \(401\)"):
                run_all("check", "east")
        else:
            said, _ = run_all("check", "east")
            assert "connected: Kubernetes v1.32.4, 1 nodes" in said
            assert "granted\tWatch nodes and pods (required)" in said
            cordon = "Cordon, taint and label nodes (default)"
            reads = token == api_server.READER_TOKEN
            assert (f"missing\t{cordon}: patch nodes" if reads else f"granted\t{cordon}") in said
            assert ("kubectl apply -f deploy/rbac.yaml" in said) == reads
            few, _ = run_all("check", "east", "--process", "live")
            assert few.count("\t") == 2
        assert Entry.objects.filter(verb="cluster.tested").first().data["reached"] == (not code)
