"""What the pages about a new cluster show."""

from dataclasses import dataclass

from kcover_portal import encryption
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.fleet.services.cluster_access import Access, FeatureAccess, State
from kcover_portal.kube.rights import Need
from kcover_portal.policies import queries as policies

# Prints a kubeconfig of an account with the rights in deploy/rbac.yaml.
ACCOUNT_COMMANDS = """\
kubectl apply -f deploy/rbac.yaml
kubectl config set-credentials kcover-portal \\
  --token="$(kubectl -n kcover-system create token kcover-portal --duration=8760h)"
kubectl config set-context kcover-portal --user=kcover-portal \\
  --cluster="$(kubectl config view --minify -o jsonpath='{.contexts[0].context.cluster}')"
kubectl config view --minify --flatten --context=kcover-portal"""
ORDER = ("required", "lacking", "unknown", "optional")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a new cluster got."""

    nodes: int
    agents: int
    policies: bool


def lacking(access: Access) -> list[tuple[str, FeatureAccess]]:
    """The features without all their rights, with keys of ``presentation.TABLES["right"]``; what is needed first."""
    found = ((_state(one), one) for one in access.features if one.state != State.GRANTED)
    return sorted(found, key=lambda row: ORDER.index(row[0]))


def granted(access: Access) -> list[FeatureAccess]:
    """The features with all their rights."""
    return [one for one in access.features if one.state == State.GRANTED]


def progress(cluster: Cluster) -> Progress:
    return Progress(
        nodes=cluster.nodes.filter(in_cluster=True).count(),
        agents=Agent.objects.filter(node__cluster=cluster).count(),
        policies=policies.policies().exists(),
    )


def needs_read_access(cluster: Cluster, *, setting: str) -> bool:
    """Returns whether web and live need a second kubeconfig: they cannot use the first, or will not be able to soon."""
    return setting == "read" and not cluster.in_cluster and not encryption.is_set(cluster, "read_kubeconfig")


def _state(one: FeatureAccess) -> str:
    if one.state != State.MISSING:
        return str(one.state)
    return {Need.REQUIRED: "required", Need.DEFAULT: "lacking", Need.OPTIONAL: "optional"}[one.feature.need]
