"""No English reaches a person who fills in a Chinese form wrongly, names and codes apart."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts.models import User
from kcover_portal.notify import services as notify
from kcover_portal.notify.models import Channel
from tests.portal.console.conftest import PASSWORD
from tests.portal.console.test_chinese import english
from tests.portal.rescue.world import World


@pytest.fixture
def reader(world: World) -> Client:
    """An admin who reads Chinese, where channel on-call exists."""
    given = {"url": "https://hooks.example/T0/x", "secret": "a secret of some length"}
    notify.CHANNELS.make(Channel(name="on-call", kind="webhook"), given, actor="user:ann", now=timezone.now())
    user = User.objects.create_superuser("root", password=PASSWORD, language="zh-hans")
    client = Client(headers={"Accept-Language": "zh-hans"})
    client.force_login(user)
    return client


INVALID_POLICIES = [
    "a: [",
    "\tx: 1",
    "a: 1\na: 2\n<<: 3\nb: on\nc: !!set {}\nd: *e\n",
    "kind: Rescue\napiVersion: v1\nx: 1\n",
    """apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: "A b"}
spec:
  rules:
    - {priority: -1, errorCode: [62], match: {}, mode: on-fire, budget: "10", cooldown: 5, approval: 3, verify: 1}
    - {errorCode: "62", match: {sxid: [1], checks: ["a b"], kinds: [x, xid], minCount: 0}, actions: [], escalate: 7}
    - {errorCode: ["62"], match: {kinds: [xid]}, nodeSelector: {operator: some, labels: {"a b": 1, c: 2}}}
    - actions:
        - {name: reboot, attribute: {unCordon: maybe, waittime: 5m, colour: red}}
        - {name: drain, attribute: {waittime: 0x5}}
        - {name: explode}
        - {name: label, attribute: {key: kcover.io/x}}
        - {name: gpuReset}
        - {name: notify, attribute: {channel: A B, message: ""}}
        - {name: webhook, attribute: {url: "ftp://x"}}
        - {name: taint, attribute: {key: a b, value: c d, effect: e}}
        - {name: runChecks, attribute: {checks: "a,a"}}
    - {onDrainTimeout: hold, actions: 5}
""",
    "apiVersion: kcover.io/v1\nkind: WarmStandbyPolicy\nmetadata: {name: a}\nspec: {matches: [{originNode: {}}, 5]}\n",
    """apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: warned}
spec:
  rules:
    - {priority: 5, errorCode: ["13", "9999"], mode: shadow, actions: [{name: cordon}]}
    - {priority: 5, errorCode: ["13"], actions: [{name: cordon}]}
    - {priority: 9, errorCode: ["13"], actions: [{name: notify, attribute: {channel: nobody}}]}
""",
    """apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: warned}
spec:
  rules:
    - {priority: 5, errorCode: ["13", "9999"], mode: shadow, actions: [{name: cordon}]}
    - {priority: 5, errorCode: ["13"], actions: [{name: cordon}]}
    - {priority: 9, errorCode: ["13"], actions: [{name: cordon}]}
    - {priority: 9, actions: [{name: cordon}]}
""",
]


def test_errors_of_a_policy_are_shown_in_chinese(reader: Client) -> None:
    found = {}
    for number, text in enumerate(INVALID_POLICIES):
        page = reader.post("/policies/validate/", {"text": text}).content.decode()
        assert "<li" in page, number
        said = [item for item in re.findall(r"<p>(.*?)</p>", page) if not re.search(r"[\u4e00-\u9fff]", item)]
        if said:
            found[number] = said
    assert found == {}


NO_WAIT = {"batching": "0", "min_interval": "0"}
REFUSED = {
    "/notifications/new/slack/": [
        {"name": "On Call", "url": "https://hooks.example/x", "language": "en"},
        {"name": "a", "url": "ftp://x", "language": "en"},
        {"name": "a", "url": "https://u:p@hooks.example/x", "language": "en"},
        {"name": "on-call", "url": "https://hooks.example/x", "language": "en"},
    ],
    "/notifications/new/alertmanager/": [
        {"name": "a", "url": "http://am.example", "secret": "a token", "language": "en", **NO_WAIT}
    ],
    "/notifications/new/pagerduty/": [{"name": "a", "secret": "short", "language": "en"}],
    "/maintenance/new/": [
        {"cluster": "", "pool": "a", "lasts": "1 h", "reason": "测试"},
        {"cluster": "c1", "pool": "a", "node": "gpu-1", "lasts": "1 h", "reason": "测试"},
        {"cluster": "c1", "begins": "2020-01-01T00:00", "lasts": "1 h", "reason": "测试"},
        {"cluster": "c1", "pool": "b", "lasts": "1 h", "reason": "测试"},
        {"cluster": "c1", "node": "gpu-01", "lasts": "1 h", "reason": "测试"},
        {"cluster": "c1", "node": "x", "lasts": "1 h", "reason": "测试"},
    ],
    "/checks/new/": [
        {"cluster": "c1", "checks": ["remapped"], "level": "1", "host": "gpu-9"},
        {"cluster": "c1", "checks": ["remapped"], "level": "1", "nodelabel": "a"},
    ],
}


def test_a_refused_chinese_form_has_no_english_words(reader: Client) -> None:
    found = {}
    for path, forms in REFUSED.items():
        for number, given in enumerate(forms):
            page = reader.post(path, given)
            assert (path, number, page.status_code) == (path, number, 422)
            if wrong := english(page.content.decode()):
                found[path, number] = sorted(set(wrong))
    assert found == {}
