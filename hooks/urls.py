"""URLs of hooks below /api/v1/hooks/."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
