"""Writes of machine drivers, and the calls to controllers."""

from kcover_portal.machines.services.controllers import Controller, Unusable, controller_of
from kcover_portal.machines.services.driver_settings import change_driver, delete_driver, make_driver
from kcover_portal.machines.services.replacements import Replacer, replacer_of

__all__ = [
    "Controller",
    "Replacer",
    "Unusable",
    "change_driver",
    "controller_of",
    "delete_driver",
    "make_driver",
    "replacer_of",
]
