"""The browser and the system that a User-Agent header names, for lists of sessions."""

import re
from typing import Final

# The first that is found; most browsers also name the ones that they are made of.
BROWSERS: Final = (
    ("Edge", re.compile(r"Edg(?:e|A|iOS)?/(\d+)")),
    ("Opera", re.compile(r"OPR/(\d+)")),
    ("Samsung Internet", re.compile(r"SamsungBrowser/(\d+)")),
    ("Firefox", re.compile(r"(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"(?:HeadlessChrome|Chrome|CriOS)/(\d+)")),
    ("Safari", re.compile(r"Version/(\d+)\S* (?:Mobile/\S+ )?Safari/")),
    ("curl", re.compile(r"curl/(\d+)")),
)
SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iOS"),
    ("iPad", "iPadOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def name(header: str) -> str:
    """Firefox 128 · Linux; the header itself if it names no known browser."""
    found = next((f"{title} {hit[1]}" for title, pattern in BROWSERS if (hit := pattern.search(header))), "")
    system = next((title for word, title in SYSTEMS if word in header), "")
    return " · ".join(filter(None, (found, system))) if found else header
