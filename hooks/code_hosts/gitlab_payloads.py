"""Read the facts of an event from a GitLab webhook payload. Pure."""

from collections.abc import Callable
from typing import Any, Final

from hooks.code_hosts.event_facts import (
    EventFacts,
    digest_written_text,
    read_id,
    read_number,
    read_object,
    read_sha,
    read_site,
    read_string,
    read_time_us,
)

# GitLab's word for an action on a merge request -> the common one.
_ACTIONS: Final = {
    "open": "opened",
    "close": "closed",
    "reopen": "reopened",
    "merge": "merged",
    "update": "edited",
}
# What starts a pipeline by somebody's request; others follow from a push or a schedule.
_REQUESTED_SOURCES: Final = frozenset({"web", "api", "trigger", "chat"})
_REDACTED: Final = "[redacted]"


def read_gitlab_event(event: str, payload: dict[str, Any]) -> EventFacts | None:
    """Return the facts of an event, or None if Gatebook does not understand its kind.

    `event` is the header X-Gitlab-Event.
    """
    reader = _READERS.get(event)
    return reader(payload) if reader is not None else None


def _common(payload: dict[str, Any]) -> dict[str, Any]:
    project, user = read_object(payload.get("project")), read_object(payload.get("user"))
    email = read_string(user.get("email") or payload.get("user_email"), 200)
    return {
        "site": read_site(project.get("web_url")),
        "repository": read_string(project.get("path_with_namespace"), 200).lower(),
        "sender": read_string(user.get("username") or payload.get("user_username"), 200),
        "emails": (email,) if email and email.lower() != _REDACTED else (),
    }


def _read_push(payload: dict[str, Any]) -> EventFacts:
    project = read_object(payload.get("project"))
    sha, before = read_sha(payload.get("after")), read_sha(payload.get("before"))
    web = read_string(project.get("web_url"))
    url = f"{web}/-/commit/{sha}" if web and sha else ""
    return EventFacts(
        **_common(payload),
        kind="push",
        action="deleted" if not sha else "created" if not before else "updated",
        ref=read_string(payload.get("ref")),
        sha=sha,
        before=before,
        created=not before,
        deleted=not sha,
        url=url,
        references=tuple(filter(None, [sha, url])),
        is_action=True,
    )


def _read_merge_request(payload: dict[str, Any]) -> EventFacts:
    request, common = read_object(payload.get("object_attributes")), _common(payload)
    number, url = read_number(request.get("iid")), read_string(request.get("url"))
    word = read_string(request.get("action"), 64)
    # `oldrev` marks an update by a push to the source branch.
    is_pushed = word == "update" and bool(request.get("oldrev"))
    action = "synchronize" if is_pushed else _ACTIONS.get(word, word)
    name = common["repository"]
    return EventFacts(
        **common,
        kind="pull_request",
        action=action,
        ref=_branch(request.get("source_branch")),
        base_ref=_branch(request.get("target_branch")),
        sha=read_sha(read_object(request.get("last_commit")).get("id")),
        number=number,
        text_digest=digest_written_text(request.get("description")),
        url=url,
        references=tuple(
            filter(
                None,
                [
                    url,
                    f"{name}!{number}" if number else "",
                    read_id(request.get("id")),
                    read_sha(request.get("merge_commit_sha")) if action == "merged" else "",
                ],
            )
        ),
        is_action=bool(word) and not is_pushed,
        occurred_us=read_time_us(request.get("updated_at")),
    )


def _read_note(payload: dict[str, Any]) -> EventFacts:
    note = read_object(payload.get("object_attributes"))
    issue, request = read_object(payload.get("issue")), read_object(payload.get("merge_request"))
    url = read_string(note.get("url"))
    word = read_string(note.get("action"), 64)
    return EventFacts(
        **_common(payload),
        kind="comment",
        action={"create": "created", "update": "edited"}.get(word, word or "created"),
        number=read_number(request.get("iid")) or read_number(issue.get("iid")),
        comment_id=read_id(note.get("id")),
        text_digest=digest_written_text(note.get("note")),
        url=url,
        references=tuple(filter(None, [url, read_id(note.get("id"))])),
        is_action=True,
        occurred_us=read_time_us(note.get("updated_at")),
    )


def _read_deployment(payload: dict[str, Any]) -> EventFacts:
    identity, status = (
        read_id(payload.get("deployment_id")),
        read_string(payload.get("status"), 40),
    )
    commit_url = read_string(payload.get("commit_url"))
    return EventFacts(
        **_common(payload),
        kind="deployment",
        action="created" if status in ("created", "running") else status,
        ref=_branch(payload.get("ref")),
        sha=read_sha(commit_url.rpartition("/")[2]),
        environment=read_string(payload.get("environment"), 100),
        conclusion=status,
        url=read_string(payload.get("deployable_url")),
        references=tuple(filter(None, [read_string(payload.get("deployable_url")), identity])),
        is_action=status in ("created", "running"),
        occurred_us=read_time_us(payload.get("status_changed_at")),
    )


def _read_pipeline(payload: dict[str, Any]) -> EventFacts:
    pipeline = read_object(payload.get("object_attributes"))
    status, url = (
        read_string(pipeline.get("status"), 40),
        read_string(pipeline.get("url")),
    )
    is_requested = read_string(pipeline.get("source"), 40) in _REQUESTED_SOURCES
    return EventFacts(
        **_common(payload),
        kind="run",
        action="requested" if status in ("created", "pending") else status,
        ref=_branch(pipeline.get("ref")),
        sha=read_sha(pipeline.get("sha")),
        conclusion=status,
        url=url,
        references=tuple(filter(None, [url, read_id(pipeline.get("id"))])),
        is_action=is_requested and status in ("created", "pending"),
        occurred_us=read_time_us(pipeline.get("finished_at") or pipeline.get("created_at")),
    )


def _read_job(payload: dict[str, Any]) -> EventFacts:
    status = read_string(payload.get("build_status"), 40)
    return EventFacts(
        **_common(payload),
        kind="check",
        action=status,
        ref=_branch(payload.get("ref")),
        sha=read_sha(payload.get("sha")),
        conclusion=status,
        references=tuple(filter(None, [read_id(payload.get("build_id"))])),
        occurred_us=read_time_us(payload.get("build_finished_at")),
    )


def _branch(name: Any) -> str:
    text = read_string(name)
    return text if not text or text.startswith("refs/") else f"refs/heads/{text}"


_READERS: Final[dict[str, Callable[[dict[str, Any]], EventFacts]]] = {
    "Push Hook": _read_push,
    "Tag Push Hook": _read_push,
    "Merge Request Hook": _read_merge_request,
    "Note Hook": _read_note,
    "Deployment Hook": _read_deployment,
    "Pipeline Hook": _read_pipeline,
    "Job Hook": _read_job,
}
GITLAB_EVENTS: Final = tuple(_READERS)
