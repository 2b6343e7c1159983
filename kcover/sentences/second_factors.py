"""Second factors at sign-in and before grave actions, and invitations."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "factor.totp": _("Code of an authenticator app."),
    "factor.passkey": _("Passkey."),
    "factor.recovery_code": _("Recovery code."),
    "passkey_named": _("Passkey {name}."),
    # Refused factors.
    "factor_wrong": _("The code is wrong or was used before. Enter the current code of your app, or a recovery code."),
    "passkey_refused": _("The passkey was not accepted. Try again, or use another way to sign in."),
    "passkey_unverified": _(
        "The passkey did not check your fingerprint, face or PIN. Sign in with your password, then use the passkey."
    ),
    "challenge_expired": _("The request of the passkey has expired or was used before. Try again."),
    "setup_expired": _("The setup has expired. Scan the new code."),
    "totp_code_wrong": _("The code is wrong. Check the clock of your device and enter the current code."),
    "seed_unreadable": _(
        "The portal cannot read the seed of your app with its encryption keys. Use a passkey or a recovery code, or ask"
        " an admin to reset your second factors."
    ),
    # Before a grave action.
    "step_up_required": _(
        "Confirm with your second factor first: on the console, or with POST {path}. The confirmation holds for {span}."
    ),
    "second_factor_missing": _("This needs a second factor, and your account has none. Add one on the page {page}."),
    "sign_in_again": _("Sign out and sign in again to change your second factors."),
    "factor_of_person": _("A token has no second factor. Only a signed-in person can confirm."),
    # Changes of factors.
    "totp_exists": _("Your account has an authenticator app. Remove it before you add another."),
    "too_many_passkeys": _("Your account has {limit} passkeys, the most possible. Remove one first."),
    "passkey_exists": _("This passkey is already registered."),
    "last_factor": _("Your role needs a second factor. Add another one before you remove this one."),
    "own_factors": _(
        "You cannot reset your own second factors. Remove them on your account page, or ask another admin."
    ),
    # Invitations.
    "invitation_invalid": _("The invitation is unknown, used, replaced or expired. Ask an admin for a new one."),
    "invitation_not_new": _("The account {user} has a password already. Only accounts without one can be invited."),
}
