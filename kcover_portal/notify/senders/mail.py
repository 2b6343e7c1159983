"""E-mail through the server that the environment configures. A repetition carries the same Message-ID."""

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from kcover import reasons
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders.message import Message, SendError

PERMANENT_FROM = 500  # SMTP codes from here on are permanent: a retry does not help


def send(channel: Channel, message: Message) -> reasons.Reason:
    """One mail to all recipients. Raises SendError; a mail that only some recipients refuse counts as sent."""
    if not settings.EMAIL_HOST:
        raise SendError(reasons.of("mail_server_unset"), later=False)
    mail = EmailMessage(
        subject=f"[kcover] {message.subject}",
        body="\n".join([*message.lines, *(["", message.link] if message.link else [])]) + "\n",
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=channel.recipients,
        headers={"Message-ID": f"<{message.key}@kcover-portal>", "Auto-Submitted": "auto-generated"},
        connection=get_connection(),
    )
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        later = any(code < PERMANENT_FROM for code, _said in error.recipients.values())
        raise SendError(reasons.of("mail_recipients_rejected", host=settings.EMAIL_HOST), later=later) from error
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        rejected = reasons.of(
            "service_rejected", host=settings.EMAIL_HOST, code=str(error.smtp_code), text=str(said)[:200]
        )
        raise SendError(rejected, later=error.smtp_code < PERMANENT_FROM) from error
    except (smtplib.SMTPException, OSError) as error:
        silent = reasons.of("host_not_answering", host=settings.EMAIL_HOST, error=str(error)[:200])
        raise SendError(silent, later=True) from error
    return reasons.of("mail_accepted")
