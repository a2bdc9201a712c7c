"""The door of questions: one string asks what pages, saved questions and the command ask, of the token's project."""

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
    """One page of the rows that a query finds, newest first, or its groups."""
    asked = parameters(call.request, {"q", "before", "after", "limit"}, {"q": MOST_CHARACTERS})
    if "q" not in asked:
        raise Problem(422, "invalid", "Send the query as q, such as q=effect is:unknown.", pointer="/q")
    if "before" in asked and "after" in asked:
        raise Problem(422, "parameters_exclude", "Send before or after, not both.", pointer="/after")
    size = whole_number(asked, "limit", USUAL, MOST)
    window: dict[str, int] = {}
    for name in ("before", "after"):
        if name in asked:
            window[name] = whole_number(asked, name, 0, LATEST)
    project = Project.objects.get(id=call.project)
    reader = Reader(project, call.received_us, people=call.token.scope == "audit")
    read_to = horizon.last_position()
    try:
        with patience.limit(call.token.agent.int, in_turn=True):
            found = _answer(asked["q"], reader, size, window)
            body = _body(found, reader, read_to)
    except Fault as fault:
        more = {"at": fault.at, "length": fault.length}
        raise Problem(422, "query_invalid", fault.sentence, pointer="/q", more=more) from None
    except patience.NoPlace:
        raise _NO_PLACE from None
    except patience.TooMany:
        raise _TOO_MANY from None
    except patience.Overran:
        log.warning("search_stopped", limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S, agent=call.token.agent_name)
        raise _TOO_LONG from None
    looks.searched(
        call.project,
        f"agent:{call.token.agent.hex}",
        asked["q"],
        entity=body["entity"],
        found=len(body["groups"]["rows"] if body["groups"] else body["rows"]),
        more=body["next"] is not None or bool(body["groups"] and body["groups"]["more"]),
    )
    return as_json(200, body)


def _answer(text: str, reader: Reader, size: int, window: dict[str, int]) -> Answer:
    asked = asking.understand(text, reader.project, reader.now_us)
    if not reader.people:
        of_whom.refuse(asked.query, reader.project)
    reader.follow(asked.context)
    rows = columns.rows(asked.entity.name)
    return asking.answer(asked, rows, size=size, before=window.get("before"), after=window.get("after"))


def _body(found: Answer, reader: Reader, read_to: int) -> dict[str, Any]:
    entity, groups = found.asked.entity.name, found.groups
    # Where a search without an index stopped looking, the next page looks on from there.
    older = found.older if found.older is not None else found.looked_back_to
    return {
        "entity": entity,
        "rows": [columns.told(entity, row, reader) for row in found.rows],
        "groups": None
        if groups is None
        else {"names": columns.group_names(groups), "rows": columns.groups_told(groups), "more": groups.more},
        "notes": found.asked.context.notes,
        "indexes": [one.as_json for one in found.asked.context.indexes.values()],
        "next": None if older is None else str(older),
        "newer": None if found.newer is None else str(found.newer),
        "as_of": read_to,
    }


_TOO_LONG: Final = Problem(
    422,
    "search_too_long",
    "This search took too long and was stopped. Narrow it: name a session, a tool, or a since and an until.",
    pointer="/q",
)
_NO_PLACE: Final = Problem(
    429,
    "no_place_to_search",
    "Other searches took all the time there was, so this one did not begin. Ask again.",
    headers={"Retry-After": "2"},
)
_TOO_MANY: Final = Problem(
    429,
    "too_many_searches",
    f"{patience.AT_ONCE} searches of this agent are under way already, so this one did not begin. Let one end.",
    headers={"Retry-After": "1"},
)
