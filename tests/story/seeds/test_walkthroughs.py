"""The walk-throughs of the four systems' documents, by an operator of each who has only our guide (docs/migrate).

Where a document prints output, ours is compared with it line by line. A difference is named here and in the guide.
The four share one installation; each installs its own policies on nodes of its own.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.story import conftest, turns
from tests.story.product import ROOT, Product, call
from tests.story.test_status import port_without_token

GUIDES = ROOT / "docs" / "migrate"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"  # what kubectl asks for
NUMBER = re.compile(r"\b[0-9]+(?:\.[0-9]+)?\b")

KCE_EXAMPLE = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: test-1
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      nodeSelector:
        operator: "any" # 有效值any / all,表示节点需要匹配所有的labels还是任意的labels
        labels:
          app: demo
          env: test
      actions:
        - name: cordon
        - name: drain
          attribute:
            waittime: "20min"
        - name: reboot
          attribute:
            waittime: "20min"
            unCordon: "true"
    - priority: 10
      errorCode: ["63","64"]
      nodeSelector:
        operator: "any" # any / all
        labels:
          app: demo
          env: test
      actions:
        - name: cordon
        - name: drain
          attribute:
            waittime: "20min"
---
apiVersion: rescue.ksyun.com/v1
kind: WarmStandbyPolicy
metadata:
  name: cluster-warm-standby
spec:
  matches:
    - originNode:
        env: dev
        app: demo
      targetNode:
        env: dev
        app: demo
"""
KCE_TRIAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: test-1
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
"""
# The document: 当前实例发生GPU Xid错误,pci:0000:03:00,xid:62,日志: Channel 00000001. Ours is in English (kce.md).
KCE_EVENT = "GPU Xid error, pci:0000:03:00, xid:62, log: Channel 00000001"

KONDUKTOR_LINE = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

AUTOPILOT_FAILED = """\
Autopilot Endpoint: 10.128.6.187
Node: hostname
url(s): http://10.128.6.187:3333/status?host=hostname&check=pciebw
Response:
Checking system status of host hostname (localhost)\x20

[[ PCIEBW ]] Briefings completed. Continue with PCIe Bandwidth evaluation.
[[ PCIEBW ]] FAIL
Host  hostname
12.3 12.3 12.3 12.3 5.3 12.3 12.3 12.3

Node Status: PCIE Failed
-------------------------------------
"""
AUTOPILOT_OK = """\
Autopilot Endpoint: 10.131.4.93
Node: hostname2
url(s): http://10.131.4.93:3333/status?host=hostname2&check=pciebw
Response:
Checking system status of host hostname2 (localhost)\x20

[[ PCIEBW ]] Briefings completed. Continue with PCIe Bandwidth evaluation.
[[ PCIEBW ]] SUCCESS
Host  hostname2
12.1 12.0 12.3 12.3 11.9 11.5 12.1 12.1

Node Status: Ok
-------------------------------------
"""


@pytest.fixture(scope="module", params=turns.PLACES)
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product without policies, whose cluster begins in shadow, as the guides say."""
    with conftest.place(request.param, tmp_path_factory) as made:
        made.set_up()
        yield made


@contextlib.contextmanager
def moved(product: Product, system: str, *commands: list[str]) -> Iterator[None]:
    """Side by side, then switched, by the guide of a system; at the end its policies go."""
    said = ["--reason", "side by side"]
    product.manage_all(
        [
            ["cluster", "set", "sim", f"acted_on_by={system}", *said],
            *commands,
            ["cluster", "set", "sim", "mode=approve", "--reason", "switch"],
            ["cluster", "set", "sim", "acted_on_by=", "--reason", "switch"],
            ["cluster", "set", "sim", "mode=enforce", "--reason", "switch"],
        ]
    )
    try:
        yield
    finally:
        active = product.get("/api/v1/policies")["results"]
        product.manage_all([["policy", "delete", one["name"]] for one in active if one["kind"] == "RescuePolicy"])


def test_kce(product: Product) -> None:
    """The document's policies, its Event, its node list, its table of Xids and its API."""
    node, healed, asked = "gpu-0001", "gpu-0002", "gpu-0003"
    for name, text in (("example", KCE_EXAMPLE), ("kce", KCE_TRIAL)):
        (product.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    example, trial = (str(product.folder / f"{name}.yaml") for name in ("example", "kce"))
    own = [["policy", "apply", "-f", path, "--reason", "from KCE"] for path in (example, trial)]
    with moved(product, "KCE", *own):
        product.inject(node, 62, line="NVRM: Xid (0000:03:00): 62, Channel 00000001")
        rescue = product.wait_rescue(node, "succeeded")
        assert (rescue["outcome"], [step["name"] for step in rescue["steps"]]) == ("isolated", ["cordon"])
        rows = product.wait(lambda: printed(product, "events", {"Reason": "XidError"}), "the Event XidError")
        assert [(row["Type"], row["Object"], row["Message"]) for row in rows] == [
            ("Warning", f"node/{node}", KCE_EVENT)
        ]
        assert [row["Status"] for row in printed(product, "nodes", {"Name": node})] == ["Ready,SchedulingDisabled"]
    with moved(product, "KCE", ["policy", "install", "kce", "--mode", "enforce"]):
        before = product.sim_node(healed)["status"]["nodeInfo"]["bootID"]
        product.inject(healed, 48)
        heals(product, healed, before)
        decides(product, asked)
    assert "its Event is in English" in words("kce.md")


def heals(product: Product, node: str, before: str) -> None:
    """A node of the document's table is rebooted, proved and returned, and all of it is on record."""
    rescue = product.wait_rescue(node, "succeeded")
    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    assert [step["name"] for step in rescue["steps"]] == ["cordon", "drain", "reboot", "ready", "verify", "uncordon"]
    assert {step["state"] for step in rescue["steps"]} == {"done"}
    seen = product.sim_node(node)
    assert not seen["spec"].get("unschedulable")
    assert seen["status"]["nodeInfo"]["bootID"] != before
    assert "kcover.io/rescue" not in seen["metadata"].get("annotations", {})
    assert "kcover.io/state" not in seen["metadata"]["labels"]
    incident = product.get(f"/api/v1/incidents?node={node}")["results"][0]
    assert (incident["kind"], incident["code"], incident["state"]) == ("xid", 48, "closed")
    decision = product.get(f"/api/v1/decisions?node={node}&answer=rescue")["results"][0]
    assert decision["rule"] == "kce#1"
    assert decision["because"][0] == "Rule kce#1 (priority 10) matches Xid 48."
    assert "intact" in product.manage("ledger", "verify", "--cluster", "sim")


def decides(product: Product, node: str) -> None:
    """A third-party decision system creates a rescue action, with the document's body and answers."""
    to_it = ["cluster", "set", "sim", "decision_mode=external", "--reason", "as before"]
    _, token = product.manage_all([to_it, ["token", "create", "--kind", "decision", "--cluster", "sim"]])
    actions = [{"name": "cordon", "waittime": "", "maps": []}, {"name": "drain", "waittime": "10min", "maps": []}]
    body: dict[str, Any] = {"nodeName": node, "xid": 62, "escalateTime": "1day3h5min", "actions": actions}

    def create(**changed: object) -> Any:
        return call("POST", f"{product.url}/api/v1/rescue-actions", {**body, **changed}, token=token.strip())[1]

    answer = create()
    assert answer.pop("rescueId")  # added (kce.md)
    assert answer == {"code": "Success", "message": "Success"}
    for wrong in ({"nodeName": "none"}, {"actions": [{"name": "drain", "waittime": "soon"}]}):
        answer = create(**wrong)
        assert (answer["code"], answer["message"][:16]) == ("Error", "Parameter error:")
    rescue = product.wait_rescue(node, "succeeded")
    assert [step["name"] for step in rescue["steps"]] == ["cordon", "drain"]
    product.manage("cluster", "set", "sim", "decision_mode=both", "--reason", "the next walk-through")


def test_konduktor(product: Product) -> None:
    """The mocked line in dmesg, the taint that is seen, and the reset."""
    node, harmless = "gpu-0004", "gpu-0005"
    with moved(product, "Konduktor", ["policy", "install", "konduktor", "--mode", "enforce"]):
        product.inject(node, 79, line=KONDUKTOR_LINE)
        product.inject(harmless, 31)  # Konduktor taints for a program's fault, too (konduktor.md)
        product.wait_rescue(node, "succeeded")
        assert faulty(product, node) == ["trainy.konduktor.ai/faulty=true:NoSchedule"]
        seen = product.get(f"/api/v1/incidents?node={node}")["results"][0]
        assert KONDUKTOR_LINE in seen["message"]
        decision = product.wait(lambda: product.get(f"/api/v1/decisions?node={harmless}")["results"], "a decision")[0]
        assert (decision["answer"], faulty(product, harmless)) == ("none", [])
        assert product.get(f"/api/v1/rescues?node={harmless}")["results"] == []

        said = product.manage("release", "--all", "--cluster", "sim")  # konduktor reset

        # The document: "Node NAME taint removed.", once it is. Ours names the rescue that removes it (konduktor.md).
        assert re.search(rf"^{node}: rescue [0-9]+ releases it$", said, re.MULTILINE)

        def released() -> bool:
            marks = product.sim_node(node)["metadata"]["annotations"]
            return faulty(product, node) == [] and "kcover.io/rescue" not in marks

        product.wait(released, "the taint to go")
        newest = f"/api/v1/incidents?node={node}"
        product.wait(lambda: product.get(newest)["results"][0]["state"] == "closed", "the incident to be closed")
    assert "in the audit log and on the page of the node, not in the log of a process" in words("konduktor.md")


def test_kcover(product: Product) -> None:
    """The two labels of the document, and a node fault."""
    commands = (
        ["policy", "install", "kcover", "--mode", "enforce"],
        ["cluster", "set", "sim", "preflight_within=30m", "--reason", "as before"],
    )
    jobs = f"{product.sim}/apis/kubeflow.org/v1/namespaces/training/pytorchjobs"
    found = call("GET", jobs, token=product.sim_token())[1]["items"]
    job = min((one["metadata"]["name"] for one in found), key=lambda name: len(pods_of(product, name)))
    with moved(product, "kcover", *commands):
        earlier = pods_of(product, job)
        for label in ("kcover.io/cascading-recovery", "kcover.io/need-recovery"):  # kubectl label pytorchjobs JOB …
            body = {"metadata": {"labels": {label: "true"}}}
            headers = {"Content-Type": "application/merge-patch+json"}
            status, _ = call("PATCH", f"{jobs}/{job}", body, token=product.sim_token(), headers=headers)
            assert status == 200

        def restarted() -> dict[str, Any] | None:
            labels = call("GET", f"{jobs}/{job}", token=product.sim_token())[1]["metadata"]["labels"]
            now = pods_of(product, job)
            is_new = len(now) == len(earlier) and not now.keys() & earlier.keys()
            return labels if is_new and "kcover.io/need-recovery" not in labels else None

        labels = product.wait(restarted, "the job to be restarted and its label to be taken off")
        assert labels["kcover.io/cascading-recovery"] == "true"
        [listed] = product.wait(lambda: jobs_of(product, job), "the list of jobs")
        assert (listed["protected"], listed["restarts"]) == (True, 1)

        other = next(one for one in jobs_of(product) if one["protected"] and one["name"] != job and one["nodes"])
        node, last = other["nodes"][0], max((one["id"] for one in product.get("/api/v1/rescues")["results"]), default=0)
        product.inject(node, 48)
        rescue = product.wait_rescue(node, "running", "waiting", "succeeded", after=last)
        assert [step["name"] for step in rescue["steps"]] == ["cordon", "restart_jobs"]
        again = product.wait(lambda: [one for one in jobs_of(product, other["name"]) if one["restarts"]], "its restart")
        assert f"rescue {rescue['id']}" in again[0]["because"]
        assert product.sim_node(node)["spec"]["unschedulable"] is True
    assert "one restart per job in 30 s" in words("kcover.md")


def test_autopilot(product: Product) -> None:
    """The query of the document through its port, and what it prints, line by line."""
    nodes = sorted(one["name"] for one in product.get("/api/v1/nodes")["results"] if one["gpus"])
    hurt = nodes[-1]
    with moved(product, "Autopilot", ["policy", "install", "autopilot", "--mode", "enforce"]):
        fault = {"node": hurt, "kind": "xid", "code": 62, "gpu": 0, "cure": "repair"}
        for name in nodes:  # whatever the other walk-throughs broke
            product.post_sim(f"/sim/nodes/{name}/cure", {})
        product.post_sim("/sim/faults", fault)
        with port_without_token(product) as url:
            status, text = call("GET", f"{url}/status?check=pciebw&wait=30")
        assert status == 200, text
        top, *rest = re.split(r"^(?=Autopilot Endpoint: )", text, flags=re.MULTILINE)
        first, run, page = top.split("\n", 2)
        assert (first, run) == (
            "Checking status on all nodes",
            f"Run {page.rsplit('/', 1)[1].strip()} in cluster sim: pciebw",
        )
        last, _, summary = rest[-1].partition("Node Summary:")
        blocks = {re.findall(r"^Node: (\S+)$", block, re.MULTILINE)[0]: block for block in (*rest[:-1], last)}
        assert sorted(blocks) == nodes
        for name, block in blocks.items():
            expected = alike(AUTOPILOT_FAILED if name == hurt else AUTOPILOT_OK, "hostname2", "hostname")
            lines = alike(block, name)
            # After a verdict FAIL: the message of the failed check (autopilot.md).
            added = [line for line in lines if line.startswith("[[ PCIEBW ]] FAIL ")]
            assert len(added) == (name == hurt)
            assert [line for line in lines if line not in added] == expected
        told = ",\n ".join(f"'{name}': ['{'PCIE Failed' if name == hurt else 'Ok'}']" for name in nodes)
        assert summary.partition("runtime")[0] == f"\n\n{{{told}}}\n\n"
        assert re.search(r"^runtime: \d+\.\d+ sec$", summary, re.MULTILINE)
        _, metrics = call("GET", f"{product.url}/metrics")
        gauges = re.findall(r'^autopilot_health_checks\{health="pciebw",node="([^"]+)"', metrics, re.MULTILINE)
        assert sorted(set(gauges)) == nodes
        [kept] = product.get("/api/v1/checks?check=pciebw&status=fail")["results"]
        assert kept["node"] == hurt
    assert "The output has a line `Run …` more, and the message of a failed check" in words("autopilot.md")


def alike(text: str, *hosts: str) -> list[str]:
    """The lines of a node's block without what differs from cluster to cluster: names, addresses and numbers."""
    for host in hosts:
        text = text.replace(host, "HOST")
    text = re.sub(r"http://[0-9.:]+/", "http://ADDRESS/", text)
    text = re.sub(r"^(Autopilot Endpoint: )\S+$", r"\1ADDRESS", text, flags=re.MULTILINE)
    return NUMBER.sub("N", text).rstrip("\n").splitlines()


def printed(product: Product, kind: str, wanted: dict[str, str]) -> list[dict[str, str]]:
    """The rows that ``kubectl get`` prints, by column."""
    path = "/api/v1/namespaces/kce-rescue-system/events" if kind == "events" else f"/api/v1/{kind}"
    _, table = call("GET", product.sim + path, token=product.sim_token(), headers={"Accept": TABLE})
    columns = [column["name"] for column in table["columnDefinitions"]]
    rows = [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"]]
    return [row for row in rows if wanted.items() <= row.items()]


def faulty(product: Product, node: str) -> list[str]:
    """What ``kubectl describe node NODE | grep trainy`` prints."""
    taints = product.sim_node(node)["spec"].get("taints", [])
    lines = [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in taints]
    return [line for line in lines if "trainy" in line]


def pods_of(product: Product, job: str) -> dict[str, str]:
    """The pods of a job that are not leaving: their nodes by uid."""
    query = f"labelSelector=training.kubeflow.org/job-name%3D{job}"
    _, found = call("GET", f"{product.sim}/api/v1/namespaces/training/pods?{query}", token=product.sim_token())
    staying = [pod for pod in found["items"] if "deletionTimestamp" not in pod["metadata"]]
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in staying}


def jobs_of(product: Product, name: str = "") -> list[dict[str, Any]]:
    """The jobs whose name has this text."""
    return list(product.get(f"/api/v1/jobs?cluster=sim&q={name}")["results"])


def words(guide: str) -> str:
    """The text of a guide, without line breaks."""
    return " ".join(Path(GUIDES / guide).read_text(encoding="utf-8").split())
