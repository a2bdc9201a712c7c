"""Generate docs/reference/search.md from the registry; the search page shows the same examples."""

import textwrap
from typing import Final

from investigation.fulltext import indexer
from investigation.query import execute, grouping
from investigation.query.entity_registry import ENTITIES, Entity
from investigation.query.fields.types import Field, MultiValue
from investigation.query.parser import query_parser, values
from ledger.tools.argument_values import MAX_FIELD_CHARACTERS

# Value of a field's example; other fields use an example of their kind.
_EXAMPLES: Final = {
    "state": "[failed,unknown]",
    "outcome": "error",
    "tool": "git.push",
    "agent": "deploy-7",
    "session": "s_41",
    "repository": "web",
    "ref": "release/*",
    "ref_class": "production",
    "environment": "prod",
    "resource": "web@main",
    "reference": '"https://forge.example/web/pull/17"',
    "permission": "bypassed",
    "basis": "exemption",
    "policy_outcome": "not_enforced",
    "rule": "production/*",
    "key": "toolu_01*",
    "intent": "!@approved_intent",
    "approved_intent": "v1:9f*",
    "reason": "rejected",
    "resolution": "happened",
    "attempts": ">1",
    "duplicate": "call",
    "call": "toolu_01",
    "chain": "e_12",
    "approver": "carol",
    "turn": "7",
    "task": "t_7",
    "compensates": "e_12",
    "parent": "e_12",
    "reviewer": "carol",
    "ruling": "approved",
    "on_behalf_of": "carol",
    "owner": "carol",
    "granter": "carol",
    "requester": "@reviewer",
    "session_owner": "@reviewer",
    "agent_owner": "@reviewer",
    "status": "failed",
    "branch": "hotfix/*",
    "title": '"Deploy the web shop"',
    "waiting_on": '"the review"*',
    "branched_from": "s_41",
    "failing_tool": "git.push",
    "resumes": ">2",
    "repeats": ">=5",
    "effects": ">100",
    "risk": "[high,critical]",
    "effect": "e_12",
    "digest": "v1:9f*",
    "minimum": ">1",
    "used": ">@expires",
    "ruled_in": "<2s",
    "uses": ">10",
    "kind": "integrity.conflict",
    "source": "deploy-7*",
    "actor": "carol",
    "position": "41000..42000",
    "attempt": ">1",
    "epoch": ">1",
    "entry_id": "a1",
}
_OF_ENTITY: Final = {
    ("session", "id"): "s_41",
    ("session", "parent"): "s_41",
    ("session", "key"): "deploy-web*",
    ("gate", "id"): "g_12",
    ("gate", "status"): "pending",
    ("gate", "reason"): "bypassed",
    ("gate", "intent"): "v1:9f*",
    ("effect", "id"): "e_12",
    ("exemption", "tool"): "git.*",
    ("exemption", "repository"): "web",
}
_OF_KIND: Final = {
    "time": "7d",
    "length": ">10m",
    "number": ">1",
    "handle": "e_12",
    "name": "carol",
}

GRAMMAR_EXAMPLES: Final = (
    ("All conditions must hold.", "tool:git.push state:failed"),
    (
        "Start with what to search for. The default is effects.",
        "session status:running",
    ),
    ("All rows of a kind.", "exemption"),
    (
        "`OR`: either side. Parentheses group conditions.",
        "state:unknown OR (state:failed attempts:>1)",
    ),
    ("Negation with `NOT` or `-`.", "tool:mail.send -agent:deploy-7"),
    ("Any of several values.", "state:[failed,unknown]"),
    ("A prefix.", "ref:release/*"),
    ("An exact value, even if it ends with `*`.", "ref:=release/*"),
    (
        'Quote a value that contains blanks or signs; `\\"` is a quote.',
        'session title:"Deploy the web shop"',
    ),
    ("Comparisons: `>`, `<`, `>=`, `<=`.", "attempts:>=3"),
    ("A range; either end may be open.", "attempts:2..5"),
    (
        "From and before a time on the server's clock: an age, a day or a minute.",
        "since:7d until:2126-01-01T09:00",
    ),
    ("One complete day.", "dispatched_at:2026-11-20"),
    (
        "Words without a field: whole words of an effect's tool, target, arguments or results, or"
        " of the agent's reason.",
        "tool:mail.send invoice",
    ),
    (
        "Several words in quotes: all of them. A `*` after a word makes it a prefix.",
        '"quarterly report" invoic*',
    ),
    (
        "The name of an agent or a person also finds what the agent did or the person decided.",
        "deploy-7 state:failed",
    ),
    ("The field has a value.", "has:reference"),
    ("An argument that the declaration of its tool names as a field.", "field.ticket:OPS-204"),
    (
        "Words in the text of effects, in any order.",
        '"invoice rounding"',
    ),
    ("A prefix of a word.", "round*"),
    ("A named condition.", "is:unknown"),
    ("Compare two fields; `!@` means that they differ.", "intent:!@approved_intent"),
    (
        "At least one related row meets all conditions.",
        "session any(effect: tool:git.push state:failed)",
    ),
    ("Every related row; also true if there are none.", "session all(effect: outcome:ok)"),
    ("No related row.", "session none(gate: ruling:approved)"),
    ("A number of related rows.", "session count(effect: attempts:>1) >= 3"),
    (
        "A sequence of journal entries.",
        "effect seq(effect.dispatched -> effect.failed -> effect.dispatched)",
    ),
    ("A sequence within a time.", "effect seq(effect.planned -> effect.dispatched within 10m)"),
    (
        "An entry that did not follow.",
        "session seq(effect.dispatched -> !effect.acknowledged within 10m)",
    ),
    (
        "State at an earlier moment: a time, an age or a journal position.",
        "state:failed asof:2026-11-20T09:00Z",
    ),
    ("Groups with counts.", "attempts:>1 since:30d | group repository"),
    (
        "Aggregates per group; the first one sorts the groups.",
        "since:30d | group tool | max(attempts), p95(took), count",
    ),
    ("A limit on the number of groups.", "effect | group tool,agent | count | top 20"),
    (
        "The calls that a session repeated most often.",
        "effect | group session,intent | count | top 20",
    ),
)

_INTRODUCTION: Final = """# Searching

One string searches effects, sessions, gates, exemptions or journal entries. You type it into the
box of the search page, and the page's URL contains it: a link to an answer is a link to its query.
Facets, bars and time ranges only change the text in the box. The same string works in
`GET /api/v1/search`, in saved queries and in `gatebook search`. Searches are recorded: one
`access.searched` entry for each person or agent, query and hour.

An unknown field or value is an error that gives the character; nothing is ignored silently. Where
it is likely what you meant, the page links the corrected query: a near spelling, a usual word
(`target:web`, `is:failed`, `status:done`), a time such as `since:yesterday` or `took:>10 minutes`,
a missing or superfluous bracket or quote, a trailing `OR`. A query that searches words where you
may mean a condition, such as `state=failed`, runs and links the condition; in the API, a note says
so. Unknown agents or people give an empty result with a note. This document is generated from the
registry that also parses queries: `python manage.py describe_search`.

A query that is only an id (`e_12`, `s_41`, a UUID, a digest, an address) opens the row.

While you type, the box completes fields and values. It counts values in the newest 1,000 rows, the
most frequent first.
"""


def example_condition(entity: Entity, field: Field) -> str:
    """Return a condition on that field, valid in a query of its entity."""
    value = _OF_ENTITY.get((entity.name, field.name)) or _EXAMPLES.get(field.name)
    if value is None and field.choices:
        value = field.choices[0][0]
    return f"{field.name}:{value or _OF_KIND.get(field.kind, 'a*')}"


def all_examples() -> list[str]:
    """Return every query of the document."""
    queries = [query for _, query in GRAMMAR_EXAMPLES]
    for entity in ENTITIES.values():
        queries += [
            f"{entity.name} {example_condition(entity, field)}" for field in entity.fields.values()
        ]
        queries += [f"{entity.name} is:{flag}" for flag in entity.flags]
        queries += [
            f"{entity.name} any({scope}: {_sample_condition(scope)})" for scope in entity.scopes
        ]
    return queries


def render_search_docs() -> str:
    """Return the text of docs/reference/search.md."""
    return (
        "\n".join(
            [
                _INTRODUCTION,
                *_render_grammar(),
                *_render_values(),
                *_render_entities(),
                *_render_declared_fields(),
                *_render_limits()[:-1],
            ]
        )
        + "\n"
    )


def _render_grammar() -> list[str]:
    rows = [f"| {words} | `{_escape_cell(query)}` |" for words, query in GRAMMAR_EXAMPLES]
    return ["## The language", "", "| what | example |", "|---|---|", *rows, ""]


def _render_values() -> list[str]:
    return [
        "## Values",
        "",
        *_wrap(
            f"A moment is {values.MOMENTS}. A length of time is 500ms, 2s, 10m, 1.5h or 7d. Times"
            " are in UTC and by the server's clock unless a field says otherwise. Effects, "
            "sessions,"
            " tasks and gates are named by handle (`e_12`) or id, sessions also by key; agents,"
            " repositories and people are named by name. Values are case-sensitive."
        ),
        *_wrap(
            "A row without a value meets no condition on that field and no comparison with another"
            " field. `NOT` reverses that: `-repository:web` also finds rows without a repository."
        ),
        *_wrap(
            "`asof:` takes a moment, a position (`#48211`) or both (`#48211@2026-11-20T09:00Z`, as"
            " in a copied link). Rows, groups and bars then show their past state, rebuilt from the"
            " journal. Fields that the journal does not record (`seen_at`) cannot be used with"
            " `asof:`. If another value cannot be rebuilt, the answer has a note."
        ),
    ]


def _render_entities() -> list[str]:
    lines = []
    for entity in ENTITIES.values():
        intro = f"`{entity.name}`: {entity.help}. `since:` and `until:` use `{entity.time}`;"
        lines += [f"## {entity.plural.capitalize()}", ""]
        lines += _wrap(f"{intro} bars are stacked by `{entity.split}`.")
        lines += [
            "| field | meaning | values | facet | index | example |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_render_field(entity, field) for field in entity.fields.values()]
        lines += [
            "",
            *_wrap(
                f"Group by {', '.join(f'`{name}`' for name in grouping.groupable_fields(entity))}."
            ),
        ]
        lines += ["| `is:` | means |", "|---|---|"]
        lines += [*(f"| `{flag.name}` | {flag.help} |" for flag in entity.flags.values()), ""]
        if entity.scopes:
            lines += ["Related rows for `any`, `all`, `none` and `count`:", ""]
            lines += [
                *(f"- `any({scope}: {_sample_condition(scope)})`" for scope in entity.scopes),
                "",
            ]
    return lines


def _render_field(entity: Entity, field: Field) -> str:
    names = " ".join(f"`{name}`" for name in (field.name, *field.aliases))
    what = f"{field.label}, {field.help}" if field.help else field.label
    signs = "; comparable" if ">" in field.operators else ""
    facet = "yes" if field.facet and not isinstance(field, MultiValue) else ""
    index = "yes" if field.index else ""
    takes = field.takes().replace("|", "\\|")
    sample = _escape_cell(example_condition(entity, field))
    return f"| {names} | {what} | {takes}{signs} | {facet} | {index} | `{sample}` |"


def _render_declared_fields() -> list[str]:
    return [
        "## Declared fields",
        "",
        *_wrap(
            "A tool's declaration can name arguments as search fields: `fields: {ticket: ticket,"
            " account: destination.account}` ([tools](tools.md)). `field.ticket:OPS-204` finds the"
            " effects with this value, `gate field.ticket:OPS-204` the requests to approve them,"
            " and `session any(effect: field.ticket:OPS-204)` their sessions. The prefix keeps"
            " these names apart from the fields above; no other name has a dot."
        ),
        *_wrap(
            "A value is compared as text, with exact case; `field.ticket:OPS-*` is a prefix, and"
            " `has:field.ticket` finds any value. An effect can have several values of a field and"
            " matches by any of them; `| group field.ticket` uses the first. Facets show the"
            " declared fields of the matches. Results of effects have the column `fields` in"
            f" exports and in the API. Values are cut after {MAX_FIELD_CHARACTERS} characters;"
            " redacted values are left out."
        ),
        *_wrap(
            "Values are indexed in the background with the words. After a declaration changed,"
            " older effects of the tool are indexed again, the newest first; until this ends, a"
            " note says from which entry on the values are complete. Erasing the body of a plan"
            " deletes its values. As of a past moment, values of later plans do not count."
        ),
    ]


def _render_limits() -> list[str]:
    return [
        "## Limits",
        "",
        *_wrap(
            f"A query can have at most {query_parser.MAX_CHARACTERS:,} characters and"
            f" {query_parser.MAX_CONDITIONS} conditions,"
            f" a list {query_parser.MAX_LIST_VALUES} values, and a sequence"
            f" {query_parser.MAX_STEPS} steps. You can group by at most"
            f" {query_parser.MAX_GROUP_FIELDS} fields with {query_parser.MAX_AGGREGATES} aggregates"
            f" and {query_parser.MAX_TOP:,} groups."
            f" Matches are counted up to {execute.COUNT_LIMIT:,}; with more matches,"
            f" facets and bars cover the newest {execute.COUNT_LIMIT:,}. If no index "
            "serves any"
            f" of the conditions, a search reads {execute.SLOW_WINDOW:,} positions, says so, and"
            " continues from there on request. A search that takes longer than"
            " `GATEBOOK_SEARCH_TIMEOUT_S` is stopped with a message."
        ),
        "## Indexes that follow the journal",
        "",
        *_wrap(
            "Words, declared fields, repeated calls (`duplicate:`, `repeats:`, `like:`) and stuck"
            " sessions "
            "(`is:stuck`, `is:looped`) are indexed in the background, usually within seconds. A"
            " "
            "full-text search"
            f" also reads the newest {indexer.MAX_UNINDEXED_ENTRIES} entries that are not indexed "
            "yet. If entries"
            " are missing from an answer, a note says so on the page, in the API and on the command"
            " line: “Words are indexed up to entry 500 of 6,000; 5,000 newer entries are missing.”"
            " The API also has the field `indexes`. An export waits until the entries that it needs"
            " are indexed; a download becomes a file made in the background. Alerts wait, too: each"
            " match is sent once."
        ),
    ]


def _wrap(text: str) -> list[str]:
    return [*textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False), ""]


def _sample_condition(entity: str) -> str:
    """Return a short condition on rows of that entity."""
    first = next(iter(ENTITIES[entity].fields.values()))
    return example_condition(ENTITIES[entity], first)


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


__all__ = ["GRAMMAR_EXAMPLES", "all_examples", "example_condition", "render_search_docs"]
