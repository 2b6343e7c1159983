"""Writes of machine drivers, and the calls to controllers."""

from kcover_portal.machines.services.confirmations import confirm as confirm
from kcover_portal.machines.services.controllers import (
    Controller as Controller,
    Unusable as Unusable,
    controller_of as controller_of,
)
from kcover_portal.machines.services.driver_settings import DRIVERS as DRIVERS
from kcover_portal.machines.services.replacements import Replacer as Replacer, replacer_of as replacer_of
