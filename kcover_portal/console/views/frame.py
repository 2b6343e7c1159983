"""The frame of a page, for pages of which nothing else is refreshed."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from kcover_portal.console.access import Request, signed_in


@require_GET
@signed_in
def frame(request: Request) -> HttpResponse:
    """The mode, the alarms, the button that pauses everything, and the numbers in the navigation."""
    return render(request, "console/parts/frame_now.html")
