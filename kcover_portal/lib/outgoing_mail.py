"""Mail through the server that the environment configures."""

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from kcover import reasons

PERMANENT_FROM = 500  # SMTP codes from here on are permanent: a retry does not help


class MailRefused(reasons.ExplainedError):
    """The server did not take the mail. ``later``: a retry may help.

    ``of_this_mail``: it refuses this mail for good, and not every mail: its content or all its recipients.
    """

    def __init__(self, reason: reasons.Reason, *, later: bool, of_this_mail: bool = False) -> None:
        super().__init__(reason)
        self.later = later
        self.of_this_mail = of_this_mail and not later


def send(mail: EmailMessage) -> None:
    """Sends one mail. Raises MailRefused; a mail that only some recipients refuse counts as sent."""
    if not settings.EMAIL_HOST:
        raise MailRefused(reasons.of("mail_server_unset"), later=False)
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        later = any(code < PERMANENT_FROM for code, _said in error.recipients.values())
        rejected = reasons.of("mail_recipients_rejected", host=settings.EMAIL_HOST)
        raise MailRefused(rejected, later=later, of_this_mail=True) from error
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        rejected = reasons.of(
            "service_rejected", host=settings.EMAIL_HOST, code=str(error.smtp_code), text=str(said)[:200]
        )
        of_this_mail = isinstance(error, smtplib.SMTPDataError)
        later = error.smtp_code < PERMANENT_FROM
        raise MailRefused(rejected, later=later, of_this_mail=of_this_mail) from error
    except (smtplib.SMTPException, OSError) as error:
        silent = reasons.of("host_not_answering", host=settings.EMAIL_HOST, error=str(error)[:200])
        raise MailRefused(silent, later=True) from error
