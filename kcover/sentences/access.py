"""Refused changes of users, roles, tokens and agents' credentials. Shown beside a form or after a prefix."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # People.
    "own_role": _("You cannot change your own role. Ask another admin."),
    "role_unknown": _("Unknown role {role}. Use one of {known}."),
    "role_taken": _("A role named {role} exists. Choose another name."),
    "role_name_invalid": _("{role} is not a valid role name; use at most 60 letters, digits, '-' and '_'"),
    "role_in_use": _("Role {role} is assigned to people or groups ({people}). Remove it from them first."),
    "verb_unknown": _("Unknown verb {verb}. Use some of {known}."),
    "verb_missing": _("A role must contain the verb {verb}."),
    "verbs_beyond_own": _("You can grant only verbs that you have there. You do not have {verbs}."),
    "user_stronger": _("User {user} has more rights than you. Ask an admin of all clusters."),
    "pool_without_cluster": _("A pool belongs to a cluster. Name the cluster."),
    "view_not_shared": _("View {name} is not shared any more."),
    "view_name_taken": _("You already have a view named {name} of this list. Choose another name."),
    "view_query_long": _("The filters of this view have more than {most} characters. Use fewer filters."),
    "views_full": _("You have {most} saved views. Delete one first."),
    "view_list_unknown": _("Unknown list {name}. Use one of {known}."),
    "home_page_unknown": _("{address} cannot be a home page. Choose a page of the navigation or a list."),
    "home_page_closed": _(
        "{page} cannot be your home page: you may not see it, or a part of its address has no effect."
    ),
    "view_of_person": _("This token has no owner, and only people have views. Use a token with an owner."),
    "view_parameters": _("The filters of this view are not valid: {parameters}. Correct the address of the list."),
    "user_name_taken": _("A user named {user} already exists. Choose another name."),
    "user_name_alike": _("{user} looks like {other}, which already exists. Choose another name."),
    "user_name_reserved": _("{user} is what a part of the portal is called in the audit log. Choose another name."),
    "user_name_invalid": _("{user} is not a valid user name. Use letters, digits and @ . + - _ only."),
    "password_too_short": _("The password is too short. Use at least {least} characters."),
    "password_too_common": _("The password is too common. Choose another."),
    "password_rejected": _("The password is too weak. Choose another."),
    "own_account": _("You cannot disable your own account. Ask another admin."),
    # Signing in and changing one's own password.
    "attempts_throttled": _("Too many failed attempts. Try again in {wait}."),
    "account_flooded": _(
        "Too many wrong passwords were given for this account. For {wait}, use a browser in which you signed in before,"
        " a passkey, or single sign-on."
    ),
    "hashing_busy": _("Too many people are signing in at this moment. Try again in {wait}."),
    "old_password_wrong": _("The old password is wrong."),
    "password_wrong": _("The password is wrong."),
    "password_of_person": _("A token has no password. Only a signed-in person can change their password."),
    "password_unchanged": _("The new password is the old one. Choose another."),
    # Tokens.
    "agent_token_without_cluster": _("An agent token requires a cluster."),
    "token_node_unused": _("Only agent tokens can be bound to a node, not kind {kind}."),
    "expiry_in_past": _("The expiry is in the past. Enter a later time."),
    "scope_unknown": _("Unknown scope {scope}. Use {known}."),
    "token_scopes_unused": _("Tokens of kind {kind} have no scopes. Only decision system and operator tokens do."),
    "token_verbs_unused": _("A token of kind {kind} does not have the verb {verb}. It can have {known}."),
    "token_network_invalid": _("{network} is not a network; write an address or 192.0.2.0/24"),
    "token_networks_unused": _("Agent tokens cannot be limited to networks. Omit networks."),
    "token_needs_expiry": _(
        "Set an expiry. Only manage.py token create --expires never creates a token that does not expire."
    ),
    "token_wrong_address": _("The token is not valid from {address}."),
    "token_rotated_by_owner": _("Only the owner of a token, signed in, can rotate it. Revoke it and create another."),
    "token_not_rotated": _("Token {token} is no longer valid, was already rotated, or belongs to a node."),
    "overlap_out_of_range": _("The overlap must be from 0 to {most} seconds."),
    # Enrolment and renewal of agents' credentials.
    "enrolment_token_invalid": _("The enrolment token is expired or revoked. Create one with manage.py token create."),
    "token_owner_role": _(
        "The owner of token {token} may not configure and administer its cluster any more."
        " Ask an administrator for a new token."
    ),
    "unknown_nodes_enrolled": _(
        "Cluster {cluster} does not have node {node}. Token {token} enrols at most {limit} such names within"
        " {window}. Check the name, or retry later."
    ),
    "parked_nodes_full": _(
        "Cluster {cluster} does not have node {node}. At most {limit} such names can wait until the cluster"
        " lists them. Check the name, or retry once the cluster lists the node."
    ),
    "node_enrolled_often": _(
        "Node {node} was enrolled {limit} times within {window}. Keep the agent's state folder when its pod"
        " restarts, or create a token for the node."
    ),
    "credential_in_use": _(
        "Node {node} still uses credential {credential}. Revoke the credential, or wait until it has been"
        " unused for {wait}."
    ),
    "credential_bound": _(
        "Credential {credential} was not created by enrolment and cannot be renewed. Enrol with an enrolment"
        " token or create one with manage.py token create --node."
    ),
    "credential_invalid": _(
        "The credential is expired, revoked or replaced. Enrol with an enrolment token or create one with"
        " manage.py token create --node."
    ),
    "renewed_recently": _(
        "Node {node} renewed its credential at {at}. The next renewal is possible {interval} later. The"
        " current credential stays valid."
    ),
}
