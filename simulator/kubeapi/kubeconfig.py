"""The kubeconfig for clients of the simulator."""

import json
from pathlib import Path


def write(
    path: Path, *, server: str, token: str, certificate_authority: Path | None = None, name: str = "simulator"
) -> None:
    """Write a kubeconfig (JSON, which is YAML) that only its owner can read.

    kubectl and client-go send a token over https only. With an ``http://`` server they send none, so the server has to
    admit anonymous callers. The official Python client always sends it.
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
