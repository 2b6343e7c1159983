"""Reports: why a period is refused."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "report_in_future": _("The period begins in the future. Write an earlier time."),
    "report_is_empty": _("The period ends before it begins. Write a later time."),
    "report_too_early": _("The period begins before {year}. Write a later time."),
    "report_too_long": _("The period is longer than {days} days. Write a later time."),
    "report_bad_moment": _('"{value}" is not a time. Write a date such as 2026-01-31, or a time such as {example}.'),
    "report_bad_by": _('A report has no groups "{value}". Write one of: {known}.'),
}
