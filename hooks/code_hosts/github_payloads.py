"""Read the facts of an event from a GitHub webhook payload. Pure."""

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

# Actions that a person or program takes on a pull request; others follow from something else.
_PULL_REQUEST_ACTIONS: Final = frozenset(
    {
        "opened",
        "closed",
        "merged",
        "reopened",
        "edited",
        "labeled",
        "unlabeled",
        "assigned",
        "unassigned",
        "ready_for_review",
        "converted_to_draft",
        "review_requested",
        "locked",
        "unlocked",
    }
)


def read_github_event(event: str, payload: dict[str, Any]) -> EventFacts | None:
    """Return the facts of an event, or None if Gatebook does not understand its kind.

    `event` is the header X-GitHub-Event.
    """
    reader = _READERS.get(event)
    return reader(payload) if reader is not None else None


def _common(payload: dict[str, Any]) -> dict[str, Any]:
    repository, sender = read_object(payload.get("repository")), read_object(payload.get("sender"))
    return {
        "action": read_string(payload.get("action"), 64),
        "site": read_site(repository.get("html_url")),
        "repository": read_string(repository.get("full_name"), 200).lower(),
        "sender": read_string(sender.get("login"), 200),
    }


def _read_push(payload: dict[str, Any]) -> EventFacts:
    common, repository = _common(payload), read_object(payload.get("repository"))
    pusher, head = read_object(payload.get("pusher")), read_object(payload.get("head_commit"))
    sha, web = read_sha(payload.get("after")), read_string(repository.get("html_url"))
    deleted = payload.get("deleted") is True
    forced = payload.get("forced")
    references = (
        sha,
        read_string(head.get("url")),
        f"{web}/commit/{sha}" if web and sha else "",
    )
    return EventFacts(
        **{
            **common,
            "action": "deleted" if deleted else "created" if payload.get("created") else "updated",
            "sender": common["sender"] or read_string(pusher.get("name"), 200),
        },
        kind="push",
        ref=read_string(payload.get("ref")),
        sha=sha,
        before=read_sha(payload.get("before")),
        created=payload.get("created") is True,
        deleted=deleted,
        forced=forced if isinstance(forced, bool) else None,
        url=read_string(payload.get("compare")),
        references=tuple(filter(None, references)),
        emails=tuple(filter(None, [read_string(pusher.get("email"), 200)])),
        is_action=True,
        occurred_us=read_time_us(repository.get("pushed_at")),
    )


def _read_pull_request(payload: dict[str, Any]) -> EventFacts:
    common, request = _common(payload), read_object(payload.get("pull_request"))
    number = read_number(payload.get("number")) or read_number(request.get("number"))
    head, base = read_object(request.get("head")), read_object(request.get("base"))
    if common["action"] == "closed" and request.get("merged") is True:
        common["action"] = "merged"
    url, name = read_string(request.get("html_url")), common["repository"]
    return EventFacts(
        **common,
        kind="pull_request",
        ref=_branch(head.get("ref")),
        base_ref=_branch(base.get("ref")),
        sha=read_sha(head.get("sha")),
        number=number,
        text_digest=digest_written_text(request.get("body")),
        url=url,
        references=tuple(
            filter(
                None,
                [
                    url,
                    read_string(request.get("url")),
                    f"{name}#{number}" if number else "",
                    read_string(request.get("node_id"), 100),
                    read_id(request.get("id")),
                    read_sha(request.get("merge_commit_sha"))
                    if common["action"] == "merged"
                    else "",
                ],
            )
        ),
        is_action=common["action"] in _PULL_REQUEST_ACTIONS,
        occurred_us=read_time_us(request.get("updated_at")),
    )


def _read_comment(payload: dict[str, Any]) -> EventFacts:
    comment, issue = read_object(payload.get("comment")), read_object(payload.get("issue"))
    url = read_string(comment.get("html_url"))
    return EventFacts(
        **_common(payload),
        kind="comment",
        number=read_number(issue.get("number")),
        comment_id=read_id(comment.get("id")),
        text_digest=digest_written_text(comment.get("body")),
        url=url,
        references=tuple(
            filter(
                None,
                [
                    url,
                    read_string(comment.get("url")),
                    read_string(comment.get("node_id"), 100),
                    read_id(comment.get("id")),
                ],
            )
        ),
        is_action=True,
        occurred_us=read_time_us(comment.get("updated_at")),
    )


def _read_deployment(payload: dict[str, Any]) -> EventFacts:
    deployment = read_object(payload.get("deployment"))
    return EventFacts(
        **_common(payload),
        kind="deployment",
        ref=_branch(deployment.get("ref")),
        sha=read_sha(deployment.get("sha")),
        environment=read_string(deployment.get("environment"), 100),
        url=read_string(deployment.get("url")),
        references=tuple(
            filter(
                None,
                [
                    read_string(deployment.get("url")),
                    read_string(deployment.get("node_id"), 100),
                    read_id(deployment.get("id")),
                ],
            )
        ),
        is_action=True,
        occurred_us=read_time_us(deployment.get("created_at")),
    )


def _read_run(payload: dict[str, Any]) -> EventFacts:
    run, workflow = read_object(payload.get("workflow_run")), read_object(payload.get("workflow"))
    actor, common = read_object(run.get("triggering_actor")), _common(payload)
    requested = common["action"] == "requested" and run.get("event") == "workflow_dispatch"
    url = read_string(run.get("html_url"))
    return EventFacts(
        **{**common, "sender": read_string(actor.get("login"), 200) or common["sender"]},
        kind="run",
        ref=_branch(run.get("head_branch")),
        sha=read_sha(run.get("head_sha")),
        workflow=read_string(run.get("path") or workflow.get("path"), 200).partition("@")[0],
        conclusion=read_string(run.get("conclusion"), 40),
        url=url,
        references=tuple(filter(None, [url, read_string(run.get("url")), read_id(run.get("id"))])),
        is_action=requested,
        occurred_us=read_time_us(run.get("updated_at")),
    )


def _read_check(payload: dict[str, Any]) -> EventFacts:
    check = read_object(payload.get("check_run"))
    suite, url = read_object(check.get("check_suite")), read_string(check.get("html_url"))
    return EventFacts(
        **_common(payload),
        kind="check",
        ref=_branch(suite.get("head_branch")),
        sha=read_sha(check.get("head_sha")),
        conclusion=read_string(check.get("conclusion"), 40),
        url=url,
        references=tuple(filter(None, [url, read_id(check.get("id"))])),
        occurred_us=read_time_us(check.get("completed_at") or check.get("started_at")),
    )


def _branch(name: Any) -> str:
    """Return the full name of a branch; a commit's name is none."""
    text = read_string(name)
    if not text or read_sha(text):
        return ""
    return text if text.startswith("refs/") else f"refs/heads/{text}"


_READERS: Final[dict[str, Callable[[dict[str, Any]], EventFacts]]] = {
    "push": _read_push,
    "pull_request": _read_pull_request,
    "issue_comment": _read_comment,
    "deployment": _read_deployment,
    "workflow_run": _read_run,
    "check_run": _read_check,
}
GITHUB_EVENTS: Final = tuple(_READERS)
