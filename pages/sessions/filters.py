"""Filters of the session list, with their fields and lookups. Request data is only ever a value."""

from typing import Final

import django_filters
from django import forms
from django.db.models import Q, QuerySet

from db.clock import now_us
from display import display_state, handles
from recovery import liveness
from sessions.models import MODES, STATUSES, Session

_WORDS: Final = {"leased": "leased", "reported": "reported", "one_shot": "one-shot"}
_NO_END: Final = "no_end_told"
_GONE: Final = "worker_gone"
_STATUSES: Final = [
    ("running", "running"),
    (_GONE, liveness.WORKER_GONE),
    (_NO_END, display_state.END_NOT_REPORTED),
    *((s, s) for s in STATUSES if s != "running"),
]
_TEXT: Final = {"autocomplete": "off", "spellcheck": "false"}


class SessionFilter(django_filters.FilterSet):  # type: ignore[misc]  # django-filter is untyped
    """Filters of sessions. `text` is a prefix of title or key; all other fields are exact."""

    text = django_filters.CharFilter(
        label="Title or key",
        method="begins",
        max_length=200,
        widget=forms.TextInput(attrs={**_TEXT, "type": "search"}),
    )
    status = django_filters.ChoiceFilter(
        label="Status", method="shown_as", choices=_STATUSES, empty_label="any"
    )
    mode = django_filters.ChoiceFilter(
        label="Mode", choices=[(m, _WORDS[m]) for m in MODES], empty_label="any"
    )
    agent = django_filters.CharFilter(
        label="Agent",
        field_name="agent__name",
        lookup_expr="exact",
        max_length=64,
        widget=forms.TextInput(attrs={**_TEXT, "list": "agents"}),
    )
    repository = django_filters.CharFilter(
        label="Repository",
        field_name="repository__name",
        lookup_expr="exact",
        max_length=200,
        widget=forms.TextInput(attrs={**_TEXT, "list": "repositories"}),
    )
    on_behalf_of = django_filters.CharFilter(
        label="On behalf of",
        field_name="on_behalf_of__username",
        lookup_expr="exact",
        max_length=150,
        widget=forms.TextInput(attrs=_TEXT),
    )
    parent = django_filters.CharFilter(
        label="Sub-session of",
        method="under",
        max_length=200,
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "s_41"}),
    )

    class Meta:
        model = Session
        fields: tuple[str, ...] = ()

    def shown_as(
        self, sessions: "QuerySet[Session]", _name: str, value: str
    ) -> "QuerySet[Session]":
        """Return the sessions with this shown status.

        A reported session without a reported end is not shown as running.
        """
        if value == _NO_END:
            return sessions.filter(display_state.end_not_reported_condition())
        worker_gone = liveness.worker_gone_condition(now_us())
        if value == _GONE:
            return sessions.filter(worker_gone)
        if value == "running":
            return sessions.filter(~worker_gone, status=value).exclude(mode="reported")
        return sessions.filter(status=value)

    def begins(self, sessions: "QuerySet[Session]", _name: str, value: str) -> "QuerySet[Session]":
        """Match a prefix of the title or key, ignoring case."""
        return sessions.filter(Q(title__istartswith=value) | Q(key__istartswith=value))

    def under(self, sessions: "QuerySet[Session]", _name: str, value: str) -> "QuerySet[Session]":
        """Match sub-sessions of the session that `value` names."""
        parent = handles.find_session(self.request.membership.project, value)
        return sessions.filter(parent=parent) if parent is not None else sessions.none()
