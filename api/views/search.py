"""The search endpoint: one query in the search language, in the token's project."""

from typing import Any, Final

import structlog
from django.conf import settings
from django.http import HttpResponse

from accounts.models import Project
from api.endpoint import Call, build_json_response, get_endpoint
from api.pagination import DEFAULT_LIMIT, MAX_LIMIT, parse_parameters, parse_whole_number
from api.problems import Problem
from display import access_log, time_limit
from investigation.query import execute, restrict_people, result_columns
from investigation.query.column_types import Reader
from investigation.query.corrections import find_meant_conditions
from investigation.query.execute import CompiledQuery, ResultPage
from investigation.query.parser.ast import QueryError
from investigation.query.parser.query_parser import MAX_CHARACTERS
from journal.running_writers import load_last_position
from proofs.stable_position import UnstableError, load_recent_position, load_stable_position

log = structlog.get_logger("gatebook.api")
LATEST_POSITION: Final = 2**63 - 1


@get_endpoint
def get_search(call: Call) -> HttpResponse:
    """Return one page of a query's rows, newest first, or its groups."""
    params = parse_parameters(
        call.request, {"q", "before", "after", "limit"}, {"q": MAX_CHARACTERS}
    )
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
    size = parse_whole_number(params, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    window: dict[str, int] = {}
    for name in ("before", "after"):
        if name in params:
            window[name] = parse_whole_number(params, name, 0, LATEST_POSITION)
    project = Project.objects.get(id=call.project)
    people = call.token.scope == "audit"
    read_to, upto = _find_bounds(window.get("after"))
    try:
        with time_limit.limit_search(call.token.agent.int, waits_for_slot=True):
            compiled = execute.compile_query(params["q"], project, call.received_us, people=people)
            if not people:
                restrict_people.reject_people_conditions(compiled.query, project)
            answer = execute.load_results(
                compiled,
                result_columns.prepare_rows(compiled.entity.name),
                size=size,
                before=window.get("before"),
                after=window.get("after"),
                upto=upto,
            )
            reader = Reader.of_context(compiled.context, people=people)
            body = _answer_to_json(answer, reader, read_to)
            body["notes"] += _list_meant_notes(compiled, call.received_us, people=people)
    except QueryError as fault:
        place = {"at": fault.at, "length": fault.length}
        raise Problem(422, "query_invalid", fault.sentence, pointer="/q", more=place) from None
    except time_limit.NoSlot:
        raise _NO_SLOT from None
    except time_limit.TooManyQueries:
        raise _TOO_MANY from None
    except time_limit.QueryTimeout:
        log.warning(
            "search_stopped",
            limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S,
            agent=call.token.agent_name,
        )
        raise _SEARCH_TOO_LONG from None
    access_log.record_search(
        call.project,
        f"agent:{call.token.agent.hex}",
        params["q"],
        entity=body["entity"],
        row_count=len(body["groups"]["rows"] if body["groups"] else body["rows"]),
        more=body["next"] is not None or bool(body["groups"] and body["groups"]["more"]),
    )
    return build_json_response(200, body)


def _find_bounds(after: int | None) -> tuple[int, int | None]:
    """Return a stable position, and the last position of the rows of a page, None for no limit.

    A client that polls `after` the position gets each row once, for none will appear below it.
    Where nothing seals and a slow transaction writes, a first page has newer rows, which a poll
    returns again.
    """
    try:
        position = load_recent_position()
    except UnstableError:
        position = load_stable_position()
        if after is None:
            return position, None
    if after is not None and after > position:
        # The client got a position that was stable then. It stays so.
        position = max(position, min(after, load_last_position()))
    return position, position


def _list_meant_notes(compiled: CompiledQuery, now_us: int, *, people: bool) -> list[str]:
    """Return a note about conditions that a query searches as words, such as `state=failed`."""
    project = compiled.context.project

    def check(text: str) -> None:
        query = execute.compile_query(text, project, now_us, people=people).query
        if not people:
            restrict_people.reject_people_conditions(query, project)

    meant = find_meant_conditions(compiled.query, check)
    return [f"Part of this query is searched as words. Did you mean “{meant}”?"] if meant else []


def _answer_to_json(answer: ResultPage, reader: Reader, read_to: int) -> dict[str, Any]:
    entity, groups = answer.compiled.entity.name, answer.groups
    # The next page continues where a search without an index stopped.
    older = answer.older if answer.older is not None else answer.looked_back_to
    return {
        "entity": entity,
        "rows": [result_columns.row_to_json(entity, row, reader) for row in answer.rows],
        "groups": None
        if groups is None
        else {
            "names": result_columns.group_column_names(groups),
            "rows": result_columns.groups_to_json(groups),
            "more": groups.more,
        },
        "notes": answer.notes,
        "indexes": [index.as_json for index in answer.compiled.indexes],
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
    f"This agent already runs {time_limit.MAX_SEARCHES_PER_USER} searches. Wait until one has "
    "finished.",
    headers={"Retry-After": "1"},
)
