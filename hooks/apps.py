"""Hooks that coding agents and code hosts call."""

from django.apps import AppConfig


class HooksConfig(AppConfig):
    name = "hooks"
    label = "hooks"
