"""A real API server. The only module that imports ``kubernetes``, and it uses only its configuration loader.

The loader supports kubeconfigs with embedded certificates, credential plug-ins and in-cluster tokens. Requests are
sent by ``http`` and decoded by ``wire``. A kubeconfig may name a program that provides credentials, so only
administrators may supply one.
"""

import functools
import importlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import urllib3
import yaml

from kcover import reasons
from kcover_portal.config import deferred
from kcover_portal.kube import bounds, errors, http, pasted_kubeconfig, plain_access
from kcover_portal.kube.verbs import access, custom_objects, events, jobs, leases, nodes, pods, pvcs, tokens, workloads

if TYPE_CHECKING:
    from kubernetes import client, config
else:
    client, config = deferred.Module("kubernetes.client"), deferred.Module("kubernetes.config")

log = logging.getLogger(__name__)
urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # one for each connection; see _warn_of_no_check


class LiveCluster(
    nodes.Nodes,
    pods.Pods,
    events.Events,
    jobs.Jobs,
    workloads.Workloads,
    custom_objects.CustomObjects,
    pvcs.PersistentVolumeClaims,
    leases.Leases,
    tokens.Tokens,
    access.Access,
):
    """The port over HTTP."""


def import_library() -> None:
    """Imports ``kubernetes``, so that the first connection of this process does not wait for it (half a second)."""
    importlib.import_module(config.__name__)


# A trial of access must not occupy the process for long, nor fill its memory, whatever the server sends.
TRIAL_CONNECT_SECONDS: Final = 3.0
TRIAL_READ_SECONDS: Final = 5.0
TRIAL_BYTES: Final = 4 * 1024 * 1024


def from_kubeconfig(
    path_or_text: str | Path, context: str | None = None, *, resolve: bounds.Resolve | None = None
) -> LiveCluster:
    """Returns the cluster of a kubeconfig, given as a path or as text. Raises ``RefusedByServer`` if it is invalid.

    ``resolve``: returns the addresses that may be called, which then are called without a proxy; None: all.
    """
    return LiveCluster(http.Connection(loader(path_or_text, context, resolve=resolve)))


def in_cluster() -> LiveCluster:
    """Returns the cluster that this process runs in. Raises ``RefusedByServer`` outside of a cluster."""
    return LiveCluster(http.Connection(_inside))


def on_trial(kubeconfig: str | None, *, resolve: bounds.Resolve) -> LiveCluster:
    """Returns a client with short time-outs for a test of the access.

    ``kubeconfig`` None: the cluster that this process runs in.
    Raises ``RefusedByServer`` for a kubeconfig that cannot be used.
    """
    load = _inside if kubeconfig is None else lambda: pasted_kubeconfig.way_in(kubeconfig, resolve=resolve)
    return LiveCluster(
        http.Connection(
            load,
            connect_seconds=TRIAL_CONNECT_SECONDS,
            read_seconds=TRIAL_READ_SECONDS,
            slack_seconds=TRIAL_READ_SECONDS,
            most_bytes=TRIAL_BYTES,
        )
    )


def _inside() -> http.WayIn:
    return plain_access.of_pod()


def loader(
    path_or_text: str | Path, context: str | None = None, *, resolve: bounds.Resolve | None = None
) -> Callable[[], http.WayIn]:
    """Returns a function that reads the kubeconfig each time it is called."""
    text = str(path_or_text)

    def load(configuration: Any) -> None:
        if isinstance(path_or_text, Path) or "\n" not in text:
            config.load_kube_config(text, context, configuration, persist_config=False)
        else:
            config.load_kube_config_from_dict(yaml.safe_load(text), context, configuration, persist_config=False)

    def read() -> http.WayIn:
        plain = plain_access.of_kubeconfig(path_or_text, context, resolve=resolve)
        if plain is None:
            proxy = plain_access.proxy_named(path_or_text, context, resolve=resolve)
            return way_in(load, resolve=resolve, proxy=proxy)
        if plain.tls is not None and plain.tls.verify_mode is ssl.CERT_NONE:
            _warn_of_no_check(plain.host)
        return plain

    return read


def way_in(
    load: Callable[[Any], None], *, resolve: bounds.Resolve | None = None, proxy: str | None = None
) -> http.WayIn:
    """Runs the official loader. Certificates are read now, because its temporary files may vanish after a fork.

    ``proxy``: in place of the environment's.
    """
    configuration = client.Configuration()
    try:
        load(configuration)
        url = urlsplit(configuration.host)
        return http.WayIn(
            host=configuration.host,
            authorization=lambda: _authorization(configuration),
            tls=_tls(configuration) if url.scheme == "https" else None,
            server_name=configuration.tls_server_name,
            proxy=proxy or plain_access.proxy_of(configuration.host, resolve),
            resolve=resolve,
        )
    except Exception as error:  # the loader raises arbitrary exceptions, such as AttributeError for an auth-provider
        raise errors.RefusedByServer(reasons.of("kubeconfig_invalid", error=str(error))) from error


def _authorization(configuration: Any) -> str | None:
    """Returns the header. The loader's hook renews expired credentials from a file or a plug-in."""
    try:
        value: str | None = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except (config.ConfigException, OSError, ValueError) as error:
        raise errors.Unavailable(reasons.of("kubeconfig_credentials", error=str(error))) from error
    return value


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 would reject cluster CAs without key identifiers, which kubeadm and others created for years.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        _warn_of_no_check(configuration.host)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


@functools.cache
def _warn_of_no_check(host: str) -> None:
    """Logs it once for each server and process."""
    log.warning(
        "The certificate of %s is not checked, so any server could take its place. Replace insecure-skip-tls-verify in"
        " the kubeconfig with certificate-authority-data.",
        host,
    )
