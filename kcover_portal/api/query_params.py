"""Strict query parameters: an unknown parameter is an error instead of being ignored."""

import difflib
from collections.abc import Collection
from typing import Any

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.views import APIView

PAGING = ("cursor", "page_size")


class StrictFilterBackend(DjangoFilterBackend):
    """Applies the view's FilterSet and rejects unknown parameters."""

    def filter_queryset(self, request: Request, queryset: Any, view: APIView) -> Any:
        """Filters the rows. Raises ValidationError with each unknown parameter and each invalid value."""
        filterset = self.get_filterset_class(view, queryset)
        refuse_unknown(request, (*PAGING, *(filterset.base_filters if filterset else ())))
        return super().filter_queryset(request, queryset, view)


def refuse_unknown(request: Request, known: Collection[str]) -> None:
    """Raises ValidationError for query parameters other than the known ones."""
    errors = {}
    for name in request.query_params:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            listed = f" Supported: {', '.join(sorted(known))}." if known else " This endpoint takes no parameters."
            errors[name] = [exceptions.ErrorDetail(f"Unknown parameter.{hint}{listed}", code="unknown")]
        elif any("\0" in value for value in request.query_params.getlist(name)):
            errors[name] = [
                exceptions.ErrorDetail("Must not contain NUL characters.", code="nul")
            ]  # PostgreSQL rejects them even in queries
    if errors:
        raise exceptions.ValidationError(errors)
