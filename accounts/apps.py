"""Projects, people, agents and their tokens."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"
    label = "accounts"

    def ready(self) -> None:
        """Register the triggers of accounts and listen for sign-ins."""
        from accounts import (
            account_guards,
            people,
            sign_ins,  # noqa: F401 - imported for its signal receivers
        )
        from accounts import triggers as accounts_triggers
        from db import triggers

        triggers.register_triggers(accounts_triggers.PROJECT_TRIGGERS)
        triggers.register_triggers(people.PASSWORD_TRIGGERS)
        triggers.register_triggers(account_guards.ACCOUNT_GUARDS)
