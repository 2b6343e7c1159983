"""Problems of one value in an agent's report, or in the portal's answer to it.

Each sentence follows the path of the value and has no full stop. The agent logs them in English.
"""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # The whole body.
    "wire_too_large": _("has {bytes} bytes, at most {limit} are allowed: send fewer items at once"),
    "wire_too_deep": _("is nested too deeply"),
    "wire_not_json": _("is not JSON in UTF-8: {error}"),
    "wire_key_twice": _("has the key {key} twice in one object: write it once"),
    "wire_constant": _("contains {name}, which is not JSON: write null or leave the key out"),
    # Any value.
    "wire_missing": _("is missing"),
    "wire_not_object": _("must be an object, not {value}"),
    "wire_not_list": _("must be a list, not {value}"),
    "wire_not_one_of": _("must be one of {known}, not {value}"),
    "wire_not_boolean": _("must be true or false, not {value}"),
    # Texts.
    "wire_not_text": _("must be a string, not {value}"),
    "wire_text_long": _("has {size} characters, at most {limit} are allowed: shorten it"),
    "wire_text_not_storable": _("contains a NUL or an unpaired surrogate: remove it"),
    "wire_identifier_invalid": _("must be 1 to {limit} printable ASCII characters without spaces, not {value}"),
    "wire_word_invalid": _("must be 1 to 64 of a-z, 0-9, '_', '.' and '-', not {value}"),
    "wire_phrase_invalid": _("must be 1 to 128 letters, digits, spaces and the characters _ . = / -, not {value}"),
    "wire_node_invalid": _(
        "must be a Kubernetes node name (lower-case letters, digits, '-' and '.', at most 253), not {value}"
    ),
    "wire_batch_invalid": _('must be a UUID such as "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11", not {value}'),
    "wire_gpu_uuid_invalid": _("must be a GPU's UUID, not {value}"),
    "wire_source_invalid": _('must be a short word such as "kmsg" (at most {limit}), not {value}'),
    "wire_pci_invalid": _('must be a PCI address such as "0000:4e:00", without "PCI:" and MIG part, not {value}'),
    # Numbers.
    "wire_not_integer": _("must be a whole number, not {value}"),
    "wire_integer_quoted": _("must be a whole number, not {value}: write {number} without quotes"),
    "wire_integer_range": _("must be from {least} to {most}"),
    "wire_not_number": _("must be a number, not {value}"),
    "wire_number_large": _("is too large for a number"),
    "wire_ranges_invalid": _("must be a list of at most {limit} pairs, not {value}"),
    "wire_range_pair": _("must contain pairs such as [12, 14], first and last, not {value}"),
    "wire_range_order": _("must contain pairs of a first and a last number, from 0 to {most}"),
    # Times.
    "wire_time_form": _('must be a time such as "2026-11-21T08:00:00Z", not {value}'),
    "wire_time_invalid": _("is not a valid time: {value}"),
    "wire_time_range": _("must be from 0001-01-02 to 9999-12-30, not {value}"),
    # Free JSON: the arguments and the output of a command.
    "wire_json_not_storable": _(
        "must not be nested deeper than {depth} or contain NUL, NaN, infinity or an integer of more than 64 bits"
    ),
    "wire_json_long": _("is longer than {limit} characters of JSON: shorten it"),
    # A report.
    "wire_version": _("{value} is not supported: write {version}"),
    "wire_items_many": _("a report has at most {limit} {items}: send this one and all after it in another batch"),
    "wire_gpus_invalid": _("must be a list of at most {limit}"),
    "wire_keys_many": _("must be an object with at most {limit} keys"),
    "wire_gpu_twice": _("{value} is used by another GPU"),
}
