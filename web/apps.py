"""Agents' text as inert markup, and the template tags of every page."""

from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "web"
    label = "web"
