"""Strict query parameters: an unknown parameter is an error instead of being ignored."""

from collections.abc import Collection
from typing import Any

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.request import Request
from rest_framework.views import APIView

from kcover import reasons
from kcover_portal.lib.errors import FieldError, FieldErrors
from kcover_portal.shared_reads import parameters

PAGING = ("cursor", "page_size")


class StrictFilterBackend(DjangoFilterBackend):
    """Applies the view's FilterSet and rejects unknown parameters."""

    def filter_queryset(self, request: Request, queryset: Any, view: APIView) -> Any:
        """Filters the rows.

        Raises FieldErrors with each unknown parameter, and ValidationError with each invalid value.
        """
        filterset = self.get_filterset_class(view, queryset)
        refuse_unknown(request, (*PAGING, *(filterset.base_filters if filterset else ())))
        return super().filter_queryset(request, queryset, view)


def refuse_unknown(request: Request, known: Collection[str]) -> None:
    """Raises FieldErrors for query parameters other than the known ones."""
    errors = []
    for name in request.query_params:
        if name not in known:
            errors.append(FieldError(name, parameters.unknown(name, known)))
        elif any("\0" in value for value in request.query_params.getlist(name)):
            # PostgreSQL rejects them even in queries
            errors.append(FieldError(name, reasons.of("nul_character")))
    if errors:
        raise FieldErrors(errors)
