"""Whom a sign-in names, read with all that every page asks of them: their projects, roles and person, in one query."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import User
from django.http import HttpRequest

from sessions import people
from sessions.access import MEMBERSHIPS
from sessions.sign_ins import CHECKED


class MemberBackend(ModelBackend):
    """Signs in by name and password as Django does; whoever is signed in brings their memberships along."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """The person of this name and password, or None. A hash that is renewed leaves the password whose it was."""
        if username is None or password is None:
            return None
        if request is not None:
            setattr(request, CHECKED, True)
        user = User.objects.filter(username=username).first()
        if user is None:
            make_password(password)  # as slow as checking one, so that the time does not say whether the name is known
            return None
        right = check_password(password, user.password, lambda raw: people.rehash_password(user, raw))
        return user if right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: Any) -> User | None:
        """The user of a sign-in, with `memberships_read` for `access.attach`; None for whoever is no longer active."""
        memberships = MEMBERSHIPS.rows(user=user_id)
        if not memberships:
            alone = User.objects.select_related("person").filter(pk=user_id).first()
            return alone if alone is not None and self.user_can_authenticate(alone) else None
        user: User = memberships[0].user
        user.memberships_read = memberships  # type: ignore[attr-defined]
        return user if self.user_can_authenticate(user) else None
