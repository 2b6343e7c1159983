"""The settings of single sign-on: its environment variables, and one value, which is complete or absent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcover_portal.config import setting_values
from kcover_portal.config.setting_values import Variable

CALLBACK = "/sign-in/oidc/callback/"
VARIABLES = (
    Variable(
        "KCOVER_OIDC_ISSUER",
        setting_values.issuer,
        "",
        "https://HOST/PATH; http:// only for a loopback address",
        "the OpenID Connect provider for [single sign-on](../people/single-sign-on.md); empty: none",
    ),
    Variable("KCOVER_OIDC_CLIENT_ID", str, "", "the client's id at the provider", "required with KCOVER_OIDC_ISSUER"),
    Variable(
        "KCOVER_OIDC_CLIENT_SECRET",
        str,
        "",
        "the client's secret; empty for a public client",
        "authenticates the portal to the provider",
        secret=True,
    ),
    Variable(
        "KCOVER_OIDC_SCOPES",
        setting_values.scopes,
        "openid profile email",
        "scopes with openid among them, separated by spaces",
        "what the portal asks the provider for; some providers send groups only with the scope groups",
    ),
    Variable(
        "KCOVER_OIDC_GROUPS_CLAIM",
        setting_values.checked(lambda text: 0 < len(text) <= 200),
        "groups",
        "the name of a claim",
        "the claim of the ID token, or of the userinfo endpoint, that lists the groups of a person",
    ),
    Variable("KCOVER_OIDC_LABEL", setting_values.line(60), "", "a text of at most 60 characters", "the button's text"),
    Variable(
        "KCOVER_OIDC_PASSWORDS",
        setting_values.Choice(("everyone", "admins", "nobody")),
        "everyone",
        "everyone, admins or nobody",
        "who may still sign in with a password; admins: who has that role for all clusters by hand",
    ),
)


class OidcIncomplete(ValueError):
    """Single sign-on lacks a setting; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oidc:
    """An OpenID Connect provider, and the portal as its client.

    ``passwords``: who may still sign in with a password, ``everyone``, ``admins`` or ``nobody``.
    ``portal``: the address of the portal that browsers use.
    """

    issuer: str
    client_id: str
    portal: str
    client_secret: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups_claim: str = "groups"
    label: str = ""
    passwords: str = "everyone"

    @property
    def callback(self) -> str:
        """The redirect URI to register at the provider."""
        return self.portal + CALLBACK


def read(values: Mapping[str, Any]) -> Oidc | None:
    """Returns the settings of single sign-on; None without a provider. Raises OidcIncomplete."""
    if not values["KCOVER_OIDC_ISSUER"]:
        return None
    for name in ("KCOVER_OIDC_CLIENT_ID", "KCOVER_PUBLIC_URL"):
        if not values[name]:
            raise OidcIncomplete(f"KCOVER_OIDC_ISSUER requires {name}; set it too")
    return Oidc(
        issuer=values["KCOVER_OIDC_ISSUER"],
        client_id=values["KCOVER_OIDC_CLIENT_ID"],
        client_secret=values["KCOVER_OIDC_CLIENT_SECRET"],
        portal=values["KCOVER_PUBLIC_URL"],
        scopes=values["KCOVER_OIDC_SCOPES"],
        groups_claim=values["KCOVER_OIDC_GROUPS_CLAIM"],
        label=values["KCOVER_OIDC_LABEL"],
        passwords=values["KCOVER_OIDC_PASSWORDS"],
    )
