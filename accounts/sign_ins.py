"""Journal and log sign-ins, wrong passwords and locks.

Every project of the person gets an entry. The journal names the person by pseudonym and holds the
address in the body, which can be erased. A name without an account is neither stored nor logged:
people type their password there by mistake.
"""

import ipaddress
from typing import Any, Final

import structlog
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest

from accounts.audit_log import record_admin_entry
from accounts.models import Membership
from accounts.people import ensure_pseudonym
from journal import entries
from journal.entries import SYSTEM_SOURCE

log = structlog.get_logger("gatebook.sign_in")
PASSWORD_CHECKED: Final = (
    "password_was_checked"  # on a request that no lock rejected before the check  # noqa: S105 - a name
)


def get_client_address(request: HttpRequest) -> str:
    """Return the client's address; with GATEBOOK_FORWARDED_FOR, the last one added."""
    direct = str(request.META.get("REMOTE_ADDR") or "")
    if settings.GATEBOOK_FORWARDED_FOR:
        last = str(request.META.get("HTTP_X_FORWARDED_FOR", "")).rpartition(",")[2].strip()
        try:
            return str(ipaddress.ip_address(last))
        except ValueError:
            return direct
    return direct


def counted_name(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str | None:
    """Return the name that counts wrong passwords; a digest for an unknown name."""
    name = (credentials or {}).get("username") or request.POST.get("username")
    if name is None or User.objects.filter(username=name).exists():
        return name
    return _count_unknown_name(str(name))


def list_counted_names(username: str) -> list[str]:
    """Return the names under which sign-ins of an account are counted.

    The first is the user name. The others are digests: of the name before the account existed, and
    of the name in another letter case, which is no account's. Names of other accounts are no part.
    """
    typed = dict.fromkeys(
        [username, username.lower(), username.upper(), username.capitalize(), username.title()]
    )
    return [username, *(_count_unknown_name(name) for name in typed)]


def _count_unknown_name(name: str) -> str:
    return f"unknown {entries.keyed_digest('sign-in', name)}"


@receiver(user_logged_in, dispatch_uid="gatebook.signed_in")
def _on_signed_in(sender: object, request: HttpRequest, user: User, **_: object) -> None:
    _record_event(user, "access.signed_in", request, actor=True)


@receiver(user_login_failed, dispatch_uid="gatebook.sign_in_failed")
def _on_sign_in_failed(
    sender: object, credentials: dict[str, Any], request: HttpRequest | None = None, **_: object
) -> None:
    if request is not None and getattr(request, PASSWORD_CHECKED, False):
        _record_event(_find_user(credentials.get("username")), "access.sign_in_failed", request)


@receiver(user_locked_out, dispatch_uid="gatebook.locked_out")
def _on_locked_out(sender: object, request: HttpRequest, username: str | None, **_: object) -> None:
    user = _find_user(username)
    if not getattr(request, PASSWORD_CHECKED, False):
        _write_log(user, "access.refused_while_locked", request)
        return
    # The signal precedes that of the wrong password which locks the name, so record both here.
    _record_event(user, "access.sign_in_failed", request)
    setattr(request, PASSWORD_CHECKED, False)
    _record_event(user, "access.locked_out", request)


def _find_user(name: object) -> User | None:
    return User.objects.filter(username=name).first()


def _record_event(
    user: User | None, kind: str, request: HttpRequest, *, actor: bool = False
) -> None:
    _write_log(user, kind, request)
    if user is None:
        return
    with transaction.atomic():
        projects = list(
            Membership.objects.filter(user=user).order_by("id").values_list("project_id", flat=True)
        )
        if not projects:
            return
        person = ensure_pseudonym(user)
        details = {"page": request.path_info[:200], "address": get_client_address(request)}
        for project in projects:
            record_admin_entry(
                project,
                kind,
                actor=person if actor else SYSTEM_SOURCE,
                subject=None,
                facts={"person": person},
                words={"person": person, "username": user.get_username(), **details},
            )


def _write_log(user: User | None, kind: str, request: HttpRequest) -> None:
    write_log = log.info if kind == "access.signed_in" else log.warning
    name = "(unknown)" if user is None else user.get_username()
    write_log(
        kind.removeprefix("access."),
        name=name,
        address=get_client_address(request),
        page=request.path_info,
    )
