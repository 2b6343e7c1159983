"""The kubeconfig that leads clients to the simulator."""

import json
from pathlib import Path


def write(
    path: Path, *, server: str, token: str, certificate_authority: Path | None = None, name: str = "simulator"
) -> None:
    """Write a kubeconfig (JSON, which is YAML) readable by its owner only.

    kubectl and client-go send a token over https alone: with an ``http://`` server they come without one, so that the
    server has to let anonymous callers in. The official Python client sends it either way.
    """
    cluster: dict[str, object] = {"server": server}
    if certificate_authority:
        cluster["certificate-authority"] = str(certificate_authority)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")
