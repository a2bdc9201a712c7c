"""Sign-ins as Django stores them in its database, read by a query that is compiled once."""

from typing import Any, Final

from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.models import Session
from django.utils import timezone

from db.compiled_query import CompiledQuerySet


class SessionStore(DatabaseStore):
    """The engine of settings.SESSION_ENGINE: every page of a person reads one sign-in."""

    def load(self) -> dict[str, Any]:
        """Return the content of the sign-in; empty if it has expired or never existed."""
        rows = _SIGN_INS.rows(key=self.session_key or "")
        valid = [content for content, expires_at in rows if expires_at > timezone.now()]
        if valid:
            return dict(self.decode(valid[0]))
        self._session_key = None
        return {}


def _query_sign_in(key: str) -> Any:
    return Session.objects.filter(pk=key).values_list("session_data", "expire_date")


_SIGN_INS: Final = CompiledQuerySet(_query_sign_in, key=str)
