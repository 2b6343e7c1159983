"""What the provider's tokens say about a person."""

from typing import Any

from oauth2_provider.oauth2_validators import OAuth2Validator


class Claims(OAuth2Validator):
    """Name and groups in each ID token."""

    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        groups = sorted(request.user.groups.values_list("name", flat=True))
        return {"preferred_username": request.user.username, "groups": groups}
