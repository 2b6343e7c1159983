"""Problems of the portal's own configuration."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "secrets_in_plain_text": _(
        "Secrets are stored in plain text: no encryption key is set. Set KCOVER_ENCRYPTION_KEY_FILE or"
        " KCOVER_ENCRYPTION_KEY_COMMAND, then run manage.py secrets rotate."
    ),
    "kubeconfig_for_all_processes": _(
        "web and live can decrypt the kubeconfig of cluster {cluster}, with which worker acts. Give them a second one"
        " with fewer rights, set KCOVER_ENGINE_KEY_FILE in worker and watch, and run manage.py secrets rotate there."
    ),
    "read_kubeconfig_missing": _(
        "web and live have no kubeconfig of cluster {cluster}. Run manage.py cluster read-access in worker."
    ),
    "policy_objects_beyond": _(
        "{count} of the policies that cluster {cluster} keeps as objects are not in force. {why} Delete some, or move "
        "them into the portal."
    ),
    "policy_objects_unread": _(
        "The policies that cluster {cluster} keeps as objects are not read: a list has more than {size} MiB. Delete "
        "some."
    ),
    "report_objects_unread": _(
        "PreflightReports in {namespaces} of cluster {cluster} are not read: their list has more than {size} MiB. "
        "Delete some."
    ),
    "api_server_plain_http": _(
        "The API server of cluster {cluster} is called over plain HTTP. Anybody on the network path can read the"
        " credentials and change the calls. Use an https:// address."
    ),
    "portal_plain_http": _(
        "KCOVER_PUBLIC_URL is {url}. Browsers and agents send passwords and credentials over plain HTTP. Use an https://"
        " address."
    ),
}
