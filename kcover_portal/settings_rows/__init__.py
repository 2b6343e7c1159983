"""Rows that people set, such as sinks and sources: one declaration is what every door has of them.

Belongs here: what a kind of rows consists of (``columns``), and how its rows are made, changed and deleted with their
entries in the audit log (``resource``). The doors build forms, bodies and options from the same declaration. Never
here: what one kind of rows means; its app declares that. Nor rows that are only made and deleted and have no name, such
as routes, nor what people may give only as far as they hold it themselves, such as roles and tokens.
"""

from kcover_portal.settings_rows.columns import (
    Choice as Choice,
    Column as Column,
    Flag as Flag,
    Number as Number,
    Options as Options,
    Pairs as Pairs,
    Person as Person,
    Recipients as Recipients,
    Secret as Secret,
    Several as Several,
    Text as Text,
)
from kcover_portal.settings_rows.names import MAX_NAME as MAX_NAME
from kcover_portal.settings_rows.resource import Given as Given, Resource as Resource
