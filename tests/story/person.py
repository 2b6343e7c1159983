"""An HTTP client that acts as a person with a browser: cookies, and forms with the CSRF token of the current page."""

import http.cookiejar
import re
import urllib.parse
import urllib.request

from tests.story.product import Product


class Person:
    """One browser session with the console."""

    def __init__(self, product: Product) -> None:
        self.url = product.url
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))

    def sign_in(self, name: str, password: str) -> str:
        """Signs in; the page that follows."""
        return self.post("/sign-in/", {"username": name, "password": password})

    def get(self, path: str) -> str:
        """A page."""
        with self.opener.open(self.url + path, timeout=60) as answer:
            return answer.read().decode()

    def post(self, path: str, fields: dict[str, str]) -> str:
        """Sends a form; the page that follows."""
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.get(path))
        assert found, "the page has no form"
        data = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": found[1]}).encode()
        with self.opener.open(self.url + path, data=data, timeout=60) as answer:
            return answer.read().decode()

    def cookies(self) -> str:
        """The cookies as a header."""
        return "; ".join(f"{one.name}={one.value}" for one in self.jar)
