"""E-mail through the server of the environment. A repetition carries the same Message-ID."""

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders.message import Message, SendError

PERMANENT_FROM = 500  # SMTP codes from here on: a retry does not help


def send(channel: Channel, message: Message) -> str:
    """One mail to all recipients. Raises SendError; a mail that only some recipients refuse counts as sent."""
    if not settings.EMAIL_HOST:
        raise SendError("KCOVER_MAIL_URL is not set: there is no mail server", later=False)
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
        raise SendError(f"{settings.EMAIL_HOST} rejects every recipient", later=later) from error
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        text = f"{settings.EMAIL_HOST} answers {error.smtp_code} {said}"[:300]
        raise SendError(text, later=error.smtp_code < PERMANENT_FROM) from error
    except (smtplib.SMTPException, OSError) as error:
        raise SendError(f"{settings.EMAIL_HOST} does not answer: {error}"[:300], later=True) from error
    return "taken by the mail server"
