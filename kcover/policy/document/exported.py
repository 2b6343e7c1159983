"""Documents as ``kubectl get -o yaml`` exports them: lists, and fields that the API server added."""

from typing import Any

LISTS = ("List", "RescuePolicyList", "WarmStandbyPolicyList")
SERVER_METADATA = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"),
    *("deletionGracePeriodSeconds", "ownerReferences", "finalizers"),
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def items(document: object) -> list[Any] | None:
    """The documents of a list; None if the document is no list."""
    if not isinstance(document, dict) or document.get("kind") not in LISTS:
        return None
    found = document.get("items")
    return found if isinstance(found, list) else None


def without_server_fields(document: Any) -> Any:
    """The document without ``status`` and without what the API server wrote into ``metadata``."""
    if not isinstance(document, dict):
        return document
    bare = {key: value for key, value in document.items() if key != "status"}
    metadata = bare.get("metadata")
    if isinstance(metadata, dict):
        bare["metadata"] = kept = {key: value for key, value in metadata.items() if key not in SERVER_METADATA}
        notes = kept.get("annotations")
        if isinstance(notes, dict) and LAST_APPLIED in notes:
            left = {key: value for key, value in notes.items() if key != LAST_APPLIED}
            kept.pop("annotations")
            kept |= {"annotations": left} if left else {}
    return bare
