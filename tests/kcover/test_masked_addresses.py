"""Keys in addresses are masked; the rest stays readable."""

import pytest

from kcover.values import masked_addresses

_CHAT = "https://hooks.x.example/services/T0123ABCD/B0123ABCD/…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://x.example/a", "https://x.example/a"),
        ("https://x.example/a?k=SECRET", "https://x.example/a?…"),
        ("HTTPS://X.example?k=SECRET", "HTTPS://X.example?…"),
        ("https://me:SECRET@x.example:8443/a#SECRET", "https://…@x.example:8443/a#…"),
        ("https://SE:CR@ET@x.example/", "https://…@x.example/"),
        ("https://x.example/a@b", "https://x.example/a@b"),
        ("https://x.example/?", "https://x.example/?"),
        (
            "url: https://x.example/a?k=SECRET\nurl: 'http://b/?SECRET'",
            "url: https://x.example/a?…\nurl: 'http://b/?…'",
        ),
        ("no address? k=1", "no address? k=1"),
        ("https://hooks.x.example/services/T0123ABCD/B0123ABCD/aB3dE5gH7jK9mN1pQ3sT", _CHAT),
        ("https://api.x.example/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/send", "https://api.x.example/…/send"),
        ("https://x.example/in/0b9a3f52-55a1-4c54-9a4b-0f8f1f1e2d3c?k=1", "https://x.example/in/…?…"),
        ("https://x.example/XXXXXXXXXXXXXXXXXXXXXXXX", "https://x.example/…"),
        ("https://x.example/api/v1/kubernetes-cluster-01/createRescueAction", ""),
        ("https://x.example/notifications-of-production/gpu-h100-8/2026-11-26", ""),
        ("https://gpu-0123456789abcdef0123.x.example/in", ""),
    ],
)
def test_a_text(text: str, shown: str) -> None:
    shown = shown or text
    assert masked_addresses.mask_text(text) == shown
    assert masked_addresses.has_key(text) == (shown != text)


def test_a_document() -> None:
    value = {"url": "http://b/?SECRET", "list": ["http://b/?SECRET", 1, None]}
    assert masked_addresses.mask(value) == {"url": "http://b/?…", "list": ["http://b/?…", 1, None]}
