"""Single sign-on: reasons of a refusal, with the remedy for the person or the operator."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # The browser's way back from the provider.
    "oidc_off": _("Single sign-on is not configured."),
    "oidc_state_missing": _("This sign-in was not started in this browser, or took longer than {wait}. Start again."),
    "oidc_state_wrong": _("This sign-in is not the one that this browser started last. Start again."),
    "oidc_state_used": _("This sign-in was already completed. Start again."),
    "oidc_issuer_mixed_up": _("The answer came from another identity provider than the one requested. Start again."),
    "oidc_refused": _("The identity provider refused the sign-in: {error}."),
    "oidc_code_missing": _("The identity provider sent no code. Start again."),
    "oidc_busy": _("Too many people are signing in at this moment. Try again in {wait}."),
    # The provider itself.
    "oidc_unreachable": _("The identity provider cannot be reached. Try again later. {problem}"),
    "oidc_answer_invalid": _("The identity provider sent an invalid answer ({part}). Ask an administrator."),
    "oidc_issuer_wrong": _("The discovery document names the issuer {issuer}. Set KCOVER_OIDC_ISSUER to that text."),
    "oidc_endpoint_insecure": _("The provider's {endpoint} does not use https. Single sign-on is refused."),
    "oidc_code_refused": _(
        "The identity provider did not accept the code: {error}. Start again. If this repeats, an administrator checks"
        " the client id and secret."
    ),
    # The ID token.
    "oidc_token_unsigned": _("The ID token has no acceptable signature (algorithm {algorithm})."),
    "oidc_token_signature": _("The signature of the ID token is wrong, or its key is unknown."),
    "oidc_token_issuer": _("The ID token is from another issuer."),
    "oidc_token_audience": _("The ID token is for another client."),
    "oidc_token_nonce": _("The ID token belongs to another sign-in. Start again."),
    "oidc_token_expired": _("The ID token has expired. Start again. If this repeats, compare the clocks."),
    "oidc_token_early": _("The ID token is from the future. The clocks of provider and portal differ by over {skew}."),
    "oidc_token_incomplete": _("The ID token lacks the claim {claim}, or its value is invalid."),
    "oidc_token_access": _("The access token does not belong to the ID token."),
    "oidc_userinfo_mixed_up": _("The userinfo endpoint answered for another person."),
    "oidc_groups_overage": _(
        "The provider did not send the groups, because there are too many. Restrict the claim {claim} to the groups"
        " that are assigned to this application."
    ),
    "oidc_groups_invalid": _("The claim {claim} must be a list of at most {most} group names."),
    # The account.
    "oidc_account_disabled": _("Your account is disabled. Ask an administrator."),
    "oidc_name_taken": _(
        "There is another account with the name {name}. An administrator can link it: manage.py user link {name}"
        " --subject {subject}"
    ),
    "oidc_name_alike": _(
        "The name {name} could be taken for that of another account. An administrator can create an account with"
        " another name and link it: manage.py user link NAME --subject {subject}"
    ),
    "oidc_name_invalid": _("The provider sent no usable user name. Ask an administrator to link an account."),
    "password_sign_in_off": _("This account can only use single sign-on."),
    # Changes by admins.
    "identity_taken": _("This identity is already linked to the account {user}."),
    "identity_unknown": _("The account {user} is not linked to this identity."),
    "identity_invalid": _("Issuer and subject must have 1 to {most} characters."),
    "group_invalid": _("The name of a group must have 1 to {most} characters."),
    "group_not_mapped": _("The group {group} has no role there."),
    # Back-channel logout.
    "logout_token_invalid": _("Not a valid logout token of the provider."),
}
