"""The repair desk: what repairs, tickets, vendors, Jira and mails are."""
