"""A real API server. The only module that imports ``kubernetes``, and all it takes from it is the way in.

The official loader knows kubeconfigs, certificates in them, credential plug-ins and in-cluster tokens; requests travel
through ``http`` and are decoded by ``wire``. A kubeconfig may name a program to run for credentials: only
administrators may hand one in.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes import client, config

from kcover_portal.kube import errors, http
from kcover_portal.kube.verbs import events, jobs, nodes, pods, pvcs, tokens


class LiveCluster(nodes.Nodes, pods.Pods, events.Events, jobs.Jobs, pvcs.Claims, tokens.Tokens):
    """The port over HTTP."""


def from_kubeconfig(path_or_text: str | Path, context: str | None = None) -> LiveCluster:
    """The cluster that a kubeconfig names, given as a file's path or as its text. Raises ``Refused`` for a bad one."""
    return LiveCluster(http.Connection(loader(path_or_text, context)))


def in_cluster() -> LiveCluster:
    """The cluster that this process runs in, by its service account. Raises ``Refused`` outside of one."""
    return LiveCluster(http.Connection(lambda: way_in(config.load_incluster_config)))


def loader(path_or_text: str | Path, context: str | None = None) -> Callable[[], http.WayIn]:
    """Reads a kubeconfig each time it is called."""
    text = str(path_or_text)

    def load(configuration: Any) -> None:
        if isinstance(path_or_text, Path) or "\n" not in text:
            config.load_kube_config(text, context, configuration, persist_config=False)
        else:
            config.load_kube_config_from_dict(yaml.safe_load(text), context, configuration, persist_config=False)

    return lambda: way_in(load)


def way_in(load: Callable[[Any], None]) -> http.WayIn:
    """What the official loader finds. Certificates are read now: its temporary files may be gone after a fork."""
    configuration = client.Configuration()
    try:
        load(configuration)
        url = urlsplit(configuration.host)
        return http.WayIn(
            host=configuration.host,
            authorization=lambda: _authorization(configuration),
            tls=_tls(configuration) if url.scheme == "https" else None,
            server_name=configuration.tls_server_name,
            # The official client takes HTTPS_PROXY for plain HTTP too and knows less of no_proxy.
            proxy=None if proxy_bypass(url.netloc) else getproxies().get(url.scheme),
        )
    except Exception as error:  # the loader raises whatever it falls over: an AttributeError for an auth-provider
        raise errors.RefusedByServer(f"kubeconfig: {error}") from error


def _authorization(configuration: Any) -> str | None:
    """The header; the loader's hook renews what has expired, by reading a file or running a plug-in."""
    try:
        value: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except (config.ConfigException, OSError, ValueError) as error:
        raise errors.Unavailable(f"credentials: {error}") from error
    return value


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 would refuse cluster CAs without key identifiers, which kubeadm and others made for years.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
