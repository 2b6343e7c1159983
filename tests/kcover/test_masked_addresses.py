"""Keys in addresses are masked; the rest stays readable."""

import pytest

from kcover import masked_addresses


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
    ],
)
def test_a_text(text: str, shown: str) -> None:
    assert masked_addresses.mask_text(text) == shown
    assert masked_addresses.has_key(text) == (shown != text)


def test_a_document() -> None:
    value = {"url": "http://b/?SECRET", "list": ["http://b/?SECRET", 1, None]}
    assert masked_addresses.mask(value) == {"url": "http://b/?…", "list": ["http://b/?…", 1, None]}
