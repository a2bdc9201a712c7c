"""Whom a sign-in names, read with all that every page asks of them: their projects, roles and person, in one query."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User

from sessions.access import MEMBERSHIPS


class MemberBackend(ModelBackend):
    """Signs in by name and password as Django does; whoever is signed in brings their memberships along."""

    def get_user(self, user_id: Any) -> User | None:
        """The user of a sign-in, with `memberships_read` for `access.attach`; None for whoever is no longer active."""
        memberships = MEMBERSHIPS.rows(user=user_id)
        if not memberships:
            return super().get_user(user_id)
        user: User = memberships[0].user
        user.memberships_read = memberships  # type: ignore[attr-defined]
        return user if self.user_can_authenticate(user) else None
