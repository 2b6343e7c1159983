"""The catalog of sentences in the reader's language: complete, and without English in the Chinese."""

import inspect
import re

from django.utils import translation

from kcover import reasons, sentences
from kcover.faults import catalog
from kcover.policy.document import rescue_policy, standby_policy
from kcover_portal import localization
from kcover_portal.console.templatetags import console

# Names that Chinese texts keep: products, Kubernetes kinds and settings. Parameters are excluded from the check.
NAMES = {
    *(
        "GPU",
        "GPUs",
        "Xid",
        "SXid",
        "Kubernetes",
        "Pod",
        "PDB",
        "kubelet",
        "API",
        "Job",
        "DCGM",
        "NVLink",
        "UTC",
        "UID",
        "ID",
    ),
    *("decision_mode", "external", "policies", "true", "Autopilot", "PVC", "webhook"),
    *("HTTP", "JSON", "DNS", "ASCII", "URL", "KCOVER_MAIL_URL", "NAME", "Events", "iperf", "batch"),
    # Keys of KCE's requests, units of durations and forms of values, which are typed as they are.
    *("nodeName", "xid", "actions", "escalateTime", "name", "waittime", "maps", "unCordon", "false", "cluster"),
    # Names and values of settings of sources, and of what they send.
    *(
        "Prometheus",
        "dcgm",
        "Alertmanager",
        "firing",
        "resolved",
        "node_label",
        "source",
        "type",
        "status",
        "reason",
        "for",
        "enabled",
    ),
    *("KernelDeadlock", "DockerHung", "Ready", "True", "False", "Unknown", "info", "warning", "degraded", "fatal"),
    *("override", "day", "min", "day2h30min", "4day", "namespace", "key", "value", "https", "hooks", "example"),
    *(
        "on",
        "call",
        "YAML",
        "UTF",
        "repair",
        "hook",
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "rules",
        "match",
        "matches",
    ),
    *("minCount", "kinds", "pciebw", "remapped", "attribute", "labels", "operator", "any", "all", "agent", "required"),
    *("WarmStandbyPolicy", "drain", "cordon", *rescue_policy.KEYS, *rescue_policy.OWN_KEYS, *rescue_policy.APPROVAL),
    *standby_policy.SIDES,
    # Parameters, headers and values of REST and of the agents' endpoint.
    *("api", "docs", "CSRF", "If", "Match", "ETag", "Content", "Type", "Encoding", "application", "yaml"),
    *("null", "NUL", "wait", "next", "previous", "shadow", "approve", "enforce", "check", "nodelabel", "workload"),
    *("ring", "IP", "gzip", "POST", "enrol", "Authorization", "Bearer", "TOKEN", "KCOVER_SERVICE_ACCOUNTS"),
    # Fields of training jobs, keys of policies.
    *("restartPolicy", "Never", "codes", "kubectl", "Kueue", "Workload"),
    # Signatures of the audit log.
    *("PEM", "Ed", "ledger", "rotate", "KCOVER_SIGNING_KEY"),
    # Sinks of the audit stream.
    *("KCOVER_AUDIT_FOLDER", "siem", "audit", "jsonl", "udp", "tcp", "tls", "HOST", "PORT"),
    # The portal's own set-up.
    *("KCOVER_PUBLIC_URL", "HTTP", "API", "https", "anchor", "verify", "FILE"),
    # Single sign-on.
    *("issuer", "KCOVER_OIDC_ISSUER", "userinfo", "user", "link", "subject"),
    # Values of agents' reports and of the decision system's address.
    *("UUID", "PCI", "MIG", "kmsg", "decisions", "plan"),
    # Commands, Kubernetes fields and forms of settings.
    *("KCOVER_ENCRYPTION_KEY_FILE", "KCOVER_ENCRYPTION_KEY_COMMAND", "secrets", "rotate", "com", "never"),
    *("manage", "py", "token", "create", "node", "InternalIP", "ReadWriteMany", "pool", "label", "rack", "KEY"),
}
WORD = re.compile(r"[A-Za-z][A-Za-z_]+")
HAN = re.compile(r"[\u4e00-\u9fff]")


def _example(code: str) -> reasons.Reason:
    """The reason with plausible parameters, without a Latin letter."""
    return reasons.of(code, **dict.fromkeys(reasons.FIELDS[code], "4"))


def test_every_sentence_is_translated_without_english_words() -> None:
    left = {}
    for code in sentences.SENTENCES:
        assert localization.say(_example(code)) == str(_example(code))
        with translation.override("zh-hans"):
            chinese = localization.say(_example(code))
        if words := [word for word in WORD.findall(chinese) if word not in NAMES]:
            left[code] = words
    assert left == {}


def test_every_text_about_a_fault_is_translated() -> None:
    with translation.override("zh-hans"):
        english = [text for text in catalog.texts() if not HAN.search(console.cataloged(text))]
    assert english == []


def test_reasons_in_a_row_are_said_in_the_readers_language() -> None:
    row = (reasons.of("paused_because", why="look first"), reasons.of("stays_isolated"))
    assert localization.sentence(row) == "Automation is paused: look first. The node stays isolated."
    with translation.override("zh-hans"):
        assert localization.sentence(row) == "自动化已暂停：look first。节点保持隔离。"


def test_the_filter_takes_a_reason_its_json_or_nothing() -> None:
    assert console.because(reasons.of("paused")) == "Automation is paused."
    assert console.because({"code": "paused", "params": {}}) == "Automation is paused."
    assert console.because({}) == ""


def test_no_two_modules_have_a_sentence_of_one_code() -> None:
    tables = [vars(module).get("SENTENCES", {}) for module in vars(sentences).values() if inspect.ismodule(module)]
    codes = [code for table in tables for code in table]
    assert [code for code in set(codes) if codes.count(code) > 1] == []
