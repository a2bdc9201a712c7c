"""Authentication backend that loads a user's memberships in the same query."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import User
from django.http import HttpRequest

from accounts import people
from accounts.access import MEMBERSHIPS
from accounts.sign_ins import PASSWORD_CHECKED


class MemberBackend(ModelBackend):
    """Sign in by name and password as Django does, and load memberships with the user."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """Return the user with this name and password, or None.

        Renewing the hash does not change who knows the password.
        """
        if username is None or password is None:
            return None
        if request is not None:
            setattr(request, PASSWORD_CHECKED, True)
        user = User.objects.filter(username=username).first()
        if user is None:
            # As slow as a check, so that timing does not reveal known names.
            make_password(password)
            return None
        right = check_password(
            password, user.password, lambda raw: people.rehash_password(user, raw)
        )
        return user if right and self.user_can_authenticate(user) else None

    def get_user(self, user_id: Any) -> User | None:
        """Return the user of a sign-in with `memberships_read` for `access.attach_membership`.

        None for a user who is no longer active.
        """
        memberships = MEMBERSHIPS.rows(user=user_id)
        if not memberships:
            single = User.objects.select_related("person").filter(pk=user_id).first()
            return single if single is not None and self.user_can_authenticate(single) else None
        user: User = memberships[0].user
        user.memberships_read = memberships  # type: ignore[attr-defined]
        return user if self.user_can_authenticate(user) else None
