"""WebSocket routes of the console."""

from django.urls import path

from kcover_portal.console import consumers

websocket_urlpatterns = [path("ws/pages", consumers.PagesConsumer.as_asgi())]
