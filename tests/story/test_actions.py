"""One rescue with the actions other than cordon, drain and reboot, against the simulator and real agents."""

from tests.story.product import Product

EVERYTHING = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: everything}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: label, attribute: {key: example.com/health, value: "xid-<code>"}}
        - name: enableWarmStandby
        - name: restartJobs
        - {name: drain, attribute: {waittime: 10min}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
        - {name: runChecks, attribute: {checks: "remapped,pciebw"}}
"""
STEPS = ["cordon", "label", "standby", "restart_jobs", "drain", "reset", "run_checks", "verify", "uncordon"]


def test_a_gpu_is_reset_while_a_standby_and_the_jobs_go_on_elsewhere(product: Product) -> None:
    product.set_up(policies=EVERYTHING, nodes=40)
    found = product.wait(lambda: product.get("/api/v1/standbys")["spares"], "spares")
    spare_names = {one["node"] for one in found if one["free"]}
    node = "gpu-0001"
    before = product.sim_node(node)
    product.wait(lambda: product.get(f"/api/v1/nodes/sim/{node}")["agent"], "the agent's first report")

    product.inject(node, 62, gpu=0, cure="reset")
    rescue = product.wait_rescue(node, "succeeded")

    assert [step["name"] for step in rescue["steps"]] == STEPS
    assert {step["state"] for step in rescue["steps"]} == {"done"}
    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    after = product.sim_node(node)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["status"]["nodeInfo"]["bootID"] == before["status"]["nodeInfo"]["bootID"]
    assert not after["spec"].get("unschedulable")
    (standby,) = product.get("/api/v1/standbys")["assignments"]
    assert (standby["origin"], standby["state"]) == (node, "active")
    assert standby["spare"] in spare_names
    assert not product.sim_node(standby["spare"])["spec"].get("unschedulable")

    product.manage("release", standby["spare"])
    product.wait(lambda: not product.get("/api/v1/standbys")["assignments"], "the standby to be given back")
    spare = product.sim_node(standby["spare"])
    assert spare["spec"]["unschedulable"] is True
    assert spare["metadata"]["labels"]["kcover.io/standby"] == "true"
    assert "kcover.io/standing-in" not in spare["metadata"]["annotations"]
    assert "intact" in product.manage("ledger", "verify", "--cluster", "sim")


DEAD = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: dead}
spec:
  rules:
    - priority: 10
      errorCode: ["79"]
      onDrainTimeout: proceed
      actions:
        - {name: drain, attribute: {waittime: 0min}}
        - {name: powerCycle, attribute: {unCordon: "true"}}
"""


def test_a_machine_that_no_reboot_brings_back_is_power_cycled(product: Product) -> None:
    """The machine is dead: its kubelet and its agent are silent, and it did not come up from a reboot."""
    product.set_up(policies=DEAD, nodes=8)
    product.add_machine_driver()
    node = "gpu-0001"
    before = product.sim_node(node)
    product.wait(lambda: product.get(f"/api/v1/nodes/sim/{node}")["agent"], "the agent's first report")
    product.manage("cluster", "set", "sim", "mode=paused")
    product.inject(node, 79, gpu=0, cure="power_cycle", returns=False)
    product.wait(lambda: product.get(f"/api/v1/incidents?node={node}")["results"], "the incident")
    product.post_sim(f"/sim/nodes/{node}/reboot", {})
    product.wait(lambda: product.sim_truth(node)["power"] == "dead", "the reboot that does not end")
    product.manage("cluster", "set", "sim", "mode=enforce")

    rescue = product.wait_rescue(node, "succeeded")

    names = ["cordon", "drain", "power_cycle", "ready", "verify", "uncordon"]
    assert [(step["name"], step["state"]) for step in rescue["steps"]] == [(name, "done") for name in names]
    assert (rescue["outcome"], rescue["verified"]) == ("healed", True)
    truth = product.sim_truth(node)
    assert [boot["cause"] for boot in truth["boots"]] == ["power on", "power on"]
    after = product.sim_node(node)
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert not after["spec"].get("unschedulable")
    assert "intact" in product.manage("ledger", "verify", "--cluster", "sim")


SWAP = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: swap}
spec:
  rules:
    - priority: 10
      errorCode: ["79"]
      actions: [{name: drain, attribute: {waittime: 1min}}, {name: replace}]
"""


def test_a_broken_machine_is_replaced_and_the_new_one_is_burnt_in(product: Product) -> None:
    """Karpenter's NodeClaim is deleted once; another machine comes under the name and is validated before it works."""
    product.set_up(policies=SWAP, nodes=8)
    product.manage("driver", "add", "nodes", "--kind", "karpenter", "--cluster", "sim")
    product.manage("cluster", "set", "sim", "burn_in=tainted", "burn_in_profile=light")
    node = "gpu-0001"
    product.post_sim(f"/sim/nodes/{node}/owner", {"kind": "NodeClaim"})
    before = product.sim_node(node)
    product.wait(lambda: product.get(f"/api/v1/nodes/sim/{node}")["agent"], "the agent's first report")
    assert "stands for" in product.manage("driver", "test", "nodes", "--node", node)

    product.inject(node, 79, gpu=0, cure="repair")
    rescue = product.wait_rescue(node, "cancelled")

    assert [(step["name"], step["state"]) for step in rescue["steps"]] == [
        *(("cordon", "done"), ("drain", "done"), ("replace", "cancelled"))
    ]
    assert rescue["outcome"] == "replaced"

    def burnt_in() -> bool:
        rescues = product.get(f"/api/v1/rescues?node={node}")["results"]
        return any(one["state"] == "succeeded" and one["id"] > rescue["id"] for one in rescues)

    product.wait(burnt_in, "the burn-in of the new machine")
    after = product.sim_node(node)
    assert after["status"]["nodeInfo"]["systemUUID"] != before["status"]["nodeInfo"]["systemUUID"]
    assert not [taint for taint in after["spec"].get("taints", []) if taint["key"] == "kcover.io/not-ready"]
    assert not after["spec"].get("unschedulable")
    made = product.sim_calls(node=node)["calls"]
    assert sum(row["count"] for row in made if (row["verb"], row["resource"]) == ("delete", "nodeclaims")) == 1
    assert "intact" in product.manage("ledger", "verify", "--cluster", "sim")
