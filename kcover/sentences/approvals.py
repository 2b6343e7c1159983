"""Approvals, and refusals of a vote or a link."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "approval_granted": _("Approved by {by}, valid until {until}."),
    "approval_waits": _("{missing} of {needed} approvals are missing. The request expires at {until}."),
    "approval_expired": _("Not enough approvals by {until}. The node stays as it is."),
    "approval_void": _("The {part} changed from {asked} to {actual} after the request. Request approval again."),
    "approval_healed": _("The fault has cleared; there is nothing left to approve."),
    "rejected": _("Denied by {by}."),
    "rejected_because": _("Denied by {by}: {why}"),
    "vote_void": _("The answer of {by} does not count: it was for {part} {voted}, not {asked}."),
    "vote_of_requester": _("{by} made the request; someone else must approve it."),
    "vote_of_program": _("{by} is a program. Only people can approve."),
    "vote_controlled": _(
        "The answer of {by} does not count: {requester} made the request and could have used the account of {by}. For"
        " a day, a person who sets the password or role of an account counts as its user."
    ),
    "vote_same_person": _(
        "The answers of {by} and {other} count as one. Within a day, one of them set the other's password or role, or"
        " one admin did so for both."
    ),
    "vote_of_gone": _(
        "{by} requested or approved this, but may no longer do so. Deny the request, then request the action again."
    ),
    "vote_early": _("{by} answered at {at}, before the request was made; the answer does not count."),
    "vote_late": _("{by} answered at {at}, too late; the answer does not count."),
    "awaiting_approval": _("Waiting for approval."),
    "not_awaiting_approval": _("Rescue {rescue} is not waiting for approval."),
    "own_request": _("You cannot approve your own request."),
    "already_answered": _("You have already answered."),
    "plan_changed": _("The plan has changed since you saw it. Review it again."),
    "may_not_approve": _("{user} may not approve in cluster {cluster}."),
    "approver_is_requester": _("{user} made the request and cannot approve it."),
    "own_request_link": _("You cannot hand out approval links for your own request."),
    "link_needs_sign_in": _("This request needs two people. Sign in as {user} to answer; a link alone is not enough."),
    "link_of_another": _("You are signed in as {user}, and this link is for another person. Sign out to use it."),
    "question_first": _(
        "Rescue {rescue} waits for {needed} people. An approver must deny or cancel it on Approvals first."
    ),
    "question_of_approver": _("Only an approver can cancel a request that needs {needed} people."),
    "admin_makes_links": _("If two approvals are required, only an admin can create a link for another person."),
    "role_needed": _("Requires the {role} role."),
}
