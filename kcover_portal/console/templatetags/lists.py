"""Tags of the lists' templates."""

from collections.abc import Sequence
from typing import Any

from django import template

from kcover_portal.console import page_parameters
from kcover_portal.console.forms import list_filters
from kcover_portal.console.list_query import ListResult, ParameterProblem
from kcover_portal.console.reads import saved_views

register = template.Library()


@register.simple_tag
def chips(found: ListResult) -> Sequence[list_filters.Chip]:
    """The filters that are set; see ``list_filters.chips``."""
    return list_filters.chips(found)


@register.simple_tag(takes_context=True)
def view_tabs(context: dict[str, Any], found: ListResult) -> Sequence[saved_views.ViewTab]:
    """The saved views of the list for the person who looks at it."""
    return saved_views.of(context["request"].user, found)


@register.simple_tag(takes_context=True)
def page_problems(context: dict[str, Any]) -> Sequence[ParameterProblem]:
    """The parameters of the address that a page other than a list does not know."""
    request = context.get("request")
    return page_parameters.problems(request) if request is not None else ()


@register.filter
def keeps_views(found: ListResult | str) -> bool:
    """Returns whether people can save views of this list."""
    return isinstance(found, ListResult) and found.listing.name in saved_views.PAGES
