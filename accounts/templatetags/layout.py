"""Navigation rail, header and footer of every page."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple

from django import template
from django.conf import settings
from django.template import Context
from django.template.loader import get_template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.access import has_role
from accounts.header_counts import build_counts_mark, load_project_status
from accounts.models import Membership
from db import jobs
from db.clock import now_us

register = template.Library()


@dataclass(frozen=True)
class NavItem:
    """An item of the navigation: label, URL name, required role, and letter after `g`."""

    name: str
    url_name: str
    role: str = "viewer"
    key: str = ""
    also: tuple[str, ...] = ()  # other paths where the item is current


MAIN_NAV = (
    NavItem("Overview", "home", key="o"),
    NavItem("Approvals", "inbox", key="a"),
    NavItem("Stuck", "stuck", key="b", also=("/stuck/",)),
    NavItem("Sessions", "sessions", key="s", also=("/sessions/", "/tasks/")),
    NavItem("Search", "search", key="u", also=("/search/", "/effects/", "/journal/")),
    NavItem("Incidents", "incidents", also=("/incidents/",)),
    NavItem(
        "Policies", "policies", key="l", also=("/approvals/policies/", "/approvals/exemptions/")
    ),
    NavItem("Tools", "tools", key="t"),
    NavItem("Code hosts", "code_hosts", also=("/code-hosts/",)),
    NavItem("Proofs", "proofs", also=("/proofs/",)),
)
_COUNT_OF_KEY = {"a": "waiting", "b": "stuck"}
# What a screen reader says after the count.
_WORDS_OF_KEY = {"a": "waiting", "b": "for a person"}

ADMIN_NAV = (
    NavItem("People", "people", "administrator", key="p"),
    NavItem("Teams", "teams", "administrator", also=("/settings/teams/",)),
    NavItem("Tokens", "tokens", "administrator", key="k"),
    NavItem("Repositories", "repositories", "administrator", key="r"),
    NavItem("Notifications", "notifications", "administrator", key="n"),
    NavItem("Retention", "retention", "operator", also=("/retention/",)),
    NavItem("Erasure", "erasures", "administrator", also=("/erasure/",)),
    NavItem(
        "Code host webhooks",
        "code_host_sources",
        "administrator",
        also=("/settings/code-hosts/",),
    ),
)


class _NavLink(NamedTuple):
    item: NavItem
    url: str


@register.simple_tag(takes_context=True)
def rail(context: dict[str, Any]) -> SafeString:
    """Render the navigation for this member's role, with the current item marked."""
    request = context["request"]
    # A poll passes the path of the page that polls.
    standing, path = load_project_status(request), context.get("path", request.path)
    matching = [
        link
        for link in _nav_links(request.membership.role)
        # Every path begins with that of the overview.
        if (path == link.url if link.url == "/" else path.startswith((link.url, *link.item.also)))
    ]
    # Of items whose paths contain each other only the longest path is current.
    current = max(matching, key=lambda link: len(link.url), default=None)
    return _render_rail(
        request.membership.role,
        current.url if current is not None else "",
        exact=current is not None and current.url == path,
        since=build_counts_mark(standing),
        waiting=standing.waiting,
        stuck=standing.stuck,
    )


@lru_cache(maxsize=256)
def _render_rail(role: str, current: str, *, exact: bool, since: str, **counts: int) -> SafeString:
    """Render the navigation for a role. Cached, since most pages share it."""
    groups: dict[bool, list[dict[str, Any]]] = {}
    for link in _nav_links(role):
        item = link.item
        entry = {
            "name": item.name,
            "url": link.url,
            "key": item.key,
            "current": link.url == current,
            "exact": exact,
            "waiting": counts.get(_COUNT_OF_KEY.get(item.key, ""), 0),
            "waiting_words": _WORDS_OF_KEY.get(item.key, ""),
        }
        groups.setdefault(item in MAIN_NAV, []).append(entry)
    context = {"groups": list(groups.values()), "since": since, "waiting": counts["waiting"]}
    return SafeString(get_template("_rail.html").render(context))


@lru_cache(maxsize=8)
def _nav_links(role: str) -> tuple[_NavLink, ...]:
    """Return the navigation items that a role may open."""
    member = Membership(role=role)
    return tuple(
        _NavLink(item, reverse(item.url_name))
        for item in (*MAIN_NAV, *ADMIN_NAV)
        if has_role(member, item.role)
    )


@register.simple_tag(takes_context=True)
def waiting_first(context: dict[str, Any]) -> str:
    """Return the number of pending requests as a title prefix; empty for none."""
    waiting = load_project_status(context["request"]).waiting
    return f"({waiting}) " if waiting else ""


@register.simple_tag(takes_context=True)
def person_link(context: Context, user_id: int | None, name: str) -> str:
    """Return a person's name; for those who may read it, as a link to all answers of the person.

    Operators may read all answers, other people only their own.
    """
    member = context["request"].membership
    if user_id is None or not (member.user_id == user_id or has_role(member, "operator")):
        return name
    return format_html('<a href="{}">{}</a>', reverse("reviewer", args=[user_id]), name)


@register.inclusion_tag("_project_banner.html", takes_context=True)
def mode_of_project(context: dict[str, Any]) -> dict[str, Any]:
    """Return the project-wide states: stopped, observe mode, archive, sample."""
    standing = load_project_status(context["request"])
    archive = context["request"].membership.project.archive
    observes = standing.mode != "enforce" and not archive
    return {
        "observes": observes,
        "stopped": standing.is_stopped,
        "archive": archive,
        "sample": context["request"].membership.project.is_sample,
        "request": context["request"],
        "csrf_token": context.get("csrf_token", ""),
    }


@register.inclusion_tag("_foot.html", takes_context=True)
def as_of(context: dict[str, Any]) -> dict[str, object]:
    """Return the page's time and journal position, and the state of background jobs.

    The position is that from before the view read its rows, where the view has stored it.
    """
    standing = load_project_status(context["request"])
    job_texts, now = standing.job_texts or "", datetime.now(UTC)
    return {
        "version": settings.GATEBOOK_VERSION,
        "now": now.isoformat(),
        "clock_time": f"{now:%H:%M:%S}",
        "position": getattr(context["request"], "read_to", standing.position),
        "jobs": [job for job in jobs.evaluate_jobs(job_texts, now_us()) if job.is_shown],
        "clock": jobs.find_clock_step(job_texts, now_us()),
    }


@register.simple_tag
@cache
def key_help() -> SafeString:
    """Render the help on keys, which is the same for all. Cached for the process."""
    return SafeString(get_template("_key_help.html").render())
