"""The search endpoint: one query in the search language, in the token's project."""

from typing import Any, Final

import structlog
from django.conf import settings
from django.http import HttpResponse

from ingest.doors import Call, as_json, reading
from ingest.paging import MOST, USUAL, parameters, whole_number
from ingest.problems import Problem
from inquiry import columns, looks, patience
from inquiry.column import Reader
from inquiry.query import asking, of_whom
from inquiry.query.asking import Answer
from inquiry.query.characters import MOST_CHARACTERS
from inquiry.query.tree import Fault
from journal import horizon
from sessions.models import Project

log = structlog.get_logger("gatebook.ingest")
LATEST: Final = 2**63 - 1


@reading
def search(call: Call) -> HttpResponse:
    """Return one page of a query's rows, newest first, or its groups."""
    params = parameters(call.request, {"q", "before", "after", "limit"}, {"q": MOST_CHARACTERS})
    if "q" not in params:
        raise Problem(
            422,
            "invalid",
            "The parameter `q` is missing. Send a query, such as q=effect is:unknown.",
            pointer="/q",
        )
    if "before" in params and "after" in params:
        raise Problem(
            422,
            "parameters_exclude",
            "`before` and `after` exclude each other. Send one of them.",
            pointer="/after",
        )
    size = whole_number(params, "limit", USUAL, MOST)
    window: dict[str, int] = {}
    for name in ("before", "after"):
        if name in params:
            window[name] = whole_number(params, name, 0, LATEST)
    project = Project.objects.get(id=call.project)
    reader = Reader(project, call.received_us, people=call.token.scope == "audit")
    read_to = horizon.last_position()
    try:
        with patience.limit(call.token.agent.int, in_turn=True):
            answer = _run_query(params["q"], reader, size, window)
            body = _answer_to_json(answer, reader, read_to)
    except Fault as fault:
        is_truncated = {"at": fault.at, "length": fault.length}
        raise Problem(
            422, "query_invalid", fault.sentence, pointer="/q", more=is_truncated
        ) from None
    except patience.NoPlace:
        raise _NO_SLOT from None
    except patience.TooMany:
        raise _TOO_MANY from None
    except patience.Overran:
        log.warning(
            "search_stopped",
            limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S,
            agent=call.token.agent_name,
        )
        raise _SEARCH_TOO_LONG from None
    looks.searched(
        call.project,
        f"agent:{call.token.agent.hex}",
        params["q"],
        entity=body["entity"],
        found=len(body["groups"]["rows"] if body["groups"] else body["rows"]),
        more=body["next"] is not None or bool(body["groups"] and body["groups"]["more"]),
    )
    return as_json(200, body)


def _run_query(text: str, reader: Reader, size: int, window: dict[str, int]) -> Answer:
    parsed = asking.understand(text, reader.project, reader.now_us)
    if not reader.people:
        of_whom.refuse(parsed.query, reader.project)
    reader.follow(parsed.context)
    rows = columns.rows(parsed.entity.name)
    return asking.answer(
        parsed, rows, size=size, before=window.get("before"), after=window.get("after")
    )


def _answer_to_json(answer: Answer, reader: Reader, read_to: int) -> dict[str, Any]:
    entity, groups = answer.asked.entity.name, answer.groups
    # The next page continues where a search without an index stopped.
    older = answer.older if answer.older is not None else answer.looked_back_to
    return {
        "entity": entity,
        "rows": [columns.told(entity, row, reader) for row in answer.rows],
        "groups": None
        if groups is None
        else {
            "names": columns.group_names(groups),
            "rows": columns.groups_told(groups),
            "more": groups.more,
        },
        "notes": answer.asked.context.notes,
        "indexes": [index.as_json for index in answer.asked.context.indexes.values()],
        "next": None if older is None else str(older),
        "newer": None if answer.newer is None else str(answer.newer),
        "as_of": read_to,
    }


_SEARCH_TOO_LONG: Final = Problem(
    422,
    "search_too_long",
    "The search took too long and was stopped. Narrow it by session, tool, or `since` and `until`.",
    pointer="/q",
)
_NO_SLOT: Final = Problem(
    429,
    "no_place_to_search",
    "The server is busy with other searches. Your search did not start. Try again.",
    headers={"Retry-After": "2"},
)
_TOO_MANY: Final = Problem(
    429,
    "too_many_searches",
    f"This agent already runs {patience.AT_ONCE} searches. Wait until one has finished.",
    headers={"Retry-After": "1"},
)
