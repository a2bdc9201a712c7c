"""The registry as a document: docs/search.md is what `page` returns, and the search page shows the same examples."""

import textwrap
from typing import Final

from inquiry.query import asking, characters, conditions, grouping, stages, values
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Field
from inquiry.query.kinds import Several
from inquiry.words import indexing

# What stands after the colon in the example of a field; of others it follows from their kind.
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
    "leave": "bypassed",
    "basis": "exemption",
    "judged": "not_held",
    "rule": "production/*",
    "key": "toolu_01*",
    "intent": "!@approved_intent",
    "approved_intent": "v1:9f*",
    "reason": "rejected",
    "resolution": "happened",
    "attempts": ">1",
    "again": "call",
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
_OF_KIND: Final = {"time": "7d", "length": ">10m", "number": ">1", "handle": "e_12", "name": "carol"}

GRAMMAR: Final = (
    ("Conditions beside each other must all hold.", "tool:git.push state:failed"),
    ("A query opens with what is asked for; effects where it says nothing.", "session status:running"),
    ("Everything of a kind.", "exemption"),
    ("Either side of `OR`; parentheses hold together.", "state:unknown OR (state:failed attempts:>1)"),
    ("Turned round, by `NOT` or `-`.", "tool:mail.send -agent:deploy-7"),
    ("Any of several values.", "state:[failed,unknown]"),
    ("The beginning of a text.", "ref:release/*"),
    ("Exactly, also where the value ends with `*`.", "ref:=release/*"),
    ('A value with blanks or signs stands between quotes; `\\"` is a quote.', 'session title:"Deploy the web shop"'),
    ("More, less, at least, at most.", "attempts:>=3"),
    ("A range; either end may be open.", "attempts:2..5"),
    ("Since and until, of the time by the server's clock: an age, a day, a minute.", "since:7d until:2126-01-01T09:00"),
    ("One day, all of it.", "dispatched_at:2026-11-20"),
    ("Lone words stand in an effect's tool, target, arguments or results, whole.", "tool:mail.send invoice"),
    ("Words between quotes: each of them. A `*` after a word: its beginning.", '"quarterly report" invoic*'),
    ("There is a value.", "has:reference"),
    (
        "Words in the text of effects: tool, target, arguments, results; whole words, in any order.",
        '"invoice rounding"',
    ),
    ("The beginning of a word.", "round*"),
    ("What it is, by a word of its own.", "is:unknown"),
    ("One field beside another; `!@` where they differ.", "intent:!@approved_intent"),
    (
        "At least one of its rows, all conditions on one and the same.",
        "session any(effect: tool:git.push state:failed)",
    ),
    ("Every one of its rows; also true where there is none.", "session all(effect: outcome:ok)"),
    ("None of its rows.", "session none(gate: ruling:approved)"),
    ("So many of its rows.", "session count(effect: attempts:>1) >= 3"),
    (
        "Entries of the journal one after another.",
        "effect seq(effect.dispatched -> effect.failed -> effect.dispatched)",
    ),
    ("… and within a time.", "effect seq(effect.planned -> effect.dispatched within 10m)"),
    ("… and what never followed.", "session seq(effect.dispatched -> !effect.acknowledged within 10m)"),
    (
        "As things stood at a moment, an age ago, or at a position of the journal.",
        "state:failed asof:2026-11-20T09:00Z",
    ),
    ("Groups, with how many there are of each.", "attempts:>1 since:30d | group repository"),
    ("Figures of groups, the first one orders them.", "since:30d | group tool | max(attempts), p95(took), count"),
    ("So many groups.", "effect | group tool,agent | count | top 20"),
    ("… such as the calls that a session repeated most.", "effect | group session,intent | count | top 20"),
)

_INTRODUCTION: Final = """# Searching

One string asks for effects, sessions, gates, exemptions or entries of the journal. It is what stands in the box of the
page Audit, and the address of that page holds it: a link to an answer is a link to its question. Facets, bars and times
beside an answer only change the text in the box. The same string works in `GET /api/v1/search`, in saved queries and in
`gatebook search`. Whoever searches is on record: an entry `access.searched` for each person or agent, query and hour.

A name or value that means nothing is an error that says at which character and names the nearest one that does; nothing
is left out in silence. What is called by a name that nobody here has, is a note beside an answer without rows. This
document is made from the registry that also reads queries: `python manage.py describe_search`.

A query that is nothing but an id (`e_12`, `s_41`, a UUID, a digest, an address) goes to what it names.
"""


def example(entity: Entity, field: Field) -> str:
    """A condition of that field, as it may stand in a query of its entity."""
    value = _OF_ENTITY.get((entity.name, field.name)) or _EXAMPLES.get(field.name)
    if value is None and field.choices:
        value = field.choices[0][0]
    return f"{field.name}:{value or _OF_KIND.get(field.kind, 'a*')}"


def examples() -> list[str]:
    """Every query of the document."""
    told = [query for _, query in GRAMMAR]
    for entity in ENTITIES.values():
        told += [f"{entity.name} {example(entity, field)}" for field in entity.fields.values()]
        told += [f"{entity.name} is:{flag}" for flag in entity.flags]
        told += [f"{entity.name} any({scope}: {_first(scope)})" for scope in entity.scopes]
    return told


def page() -> str:
    """docs/search.md."""
    return "\n".join([_INTRODUCTION, *_grammar(), *_values(), *_entities(), *_bounds()[:-1]]) + "\n"


def _grammar() -> list[str]:
    rows = [f"| {words} | `{_cell(query)}` |" for words, query in GRAMMAR]
    return ["## The language", "", "| what | example |", "|---|---|", *rows, ""]


def _values() -> list[str]:
    return [
        "## Values",
        "",
        *_words(
            f"A moment is {values.MOMENTS}. A length of time is 500ms, 2s, 10m, 1.5h or 7d. Times are in UTC and by the"
            " server's clock unless a field says otherwise. An effect, session, task or gate is named by its handle"
            " (`e_12`), its id or, a session, its key; agents, repositories and people by name. Capital and small"
            " letters differ."
        ),
        *_words(
            "A row without a value meets neither a condition of that field nor a comparison with another; `NOT` turns"
            " that round, so `-repository:web` also finds what has no repository."
        ),
        *_words(
            "`asof:` takes a moment, a position (`#48211`) or both (`#48211@2026-11-20T09:00Z`, what a copied link"
            " names). Rows, groups and bars are then told as they stood, made again from the journal. What it does not"
            " keep is not asked as of a moment (`seen_at`), and where something else cannot be told as of then, a note"
            " beside the answer says so."
        ),
    ]


def _entities() -> list[str]:
    lines = []
    for entity in ENTITIES.values():
        told = f"`{entity.name}`: {entity.help}. `since:` and `until:` go by `{entity.time}`"
        lines += [f"## {entity.plural.capitalize()}", ""]
        lines += _words(f"{told}, bars are stacked by `{entity.split}`.")
        lines += ["| field | what it is | takes | facet | index | example |", "|---|---|---|---|---|---|"]
        lines += [_field(entity, field) for field in entity.fields.values()]
        lines += ["", *_words(f"Groups are by {', '.join(f'`{name}`' for name in grouping.groupable(entity))}.")]
        lines += ["| `is:` | means |", "|---|---|"]
        lines += [*(f"| `{one.name}` | {one.help} |" for one in entity.flags.values()), ""]
        if entity.scopes:
            lines += ["Of the rows that belong to one, with `any`, `all`, `none` and `count`:", ""]
            lines += [*(f"- `any({scope}: {_first(scope)})`" for scope in entity.scopes), ""]
    return lines


def _field(entity: Entity, field: Field) -> str:
    names = " ".join(f"`{name}`" for name in (field.name, *field.aliases))
    what = f"{field.label}, {field.help}" if field.help else field.label
    signs = ", compared" if ">" in field.operators else ""
    facet, index = "yes" if field.facet and not isinstance(field, Several) else "", "yes" if field.index else ""
    takes = field.takes().replace("|", "\\|")
    return f"| {names} | {what} | {takes}{signs} | {facet} | {index} | `{_cell(example(entity, field))}` |"


def _bounds() -> list[str]:
    return [
        "## Bounds",
        "",
        *_words(
            f"A query has at most {characters.MOST_CHARACTERS:,} characters and {conditions.MOST_PARTS} conditions, a"
            f" list {conditions.MOST_VALUES} values, a sequence {conditions.MOST_STEPS} steps; at most"
            f" {stages.MOST_GROUPS} fields are grouped by, {stages.MOST_AGGREGATES} figures asked of a group and"
            f" {stages.MOST_TOP:,} groups told."
            f" More than {asking.COUNTED:,} matches are not counted, and of more, facets and bars are those of the"
            f" newest {asking.COUNTED:,}. Where no index serves any of the conditions, one search looks"
            f" {asking.SLOW_WINDOW:,} positions back, says so, and goes on from there at a click. What takes longer"
            " than `GATEBOOK_SEARCH_TIMEOUT_S` is stopped with a sentence."
        ),
        *("## Indexes that follow the journal", ""),
        *_words(
            "Words, repeated calls (`again:`, `repeats:`, `like:`) and stuck sessions (`is:stuck`, `is:looped`) are"
            " indexed in the background, usually within seconds. A search for words also reads the newest"
            f" {indexing.FRESH} entries that are not indexed yet. While entries are missing from an answer, a note says"
            " so on the page, in the API and on the command line: “Words are indexed up to entry 500 of 6,000; 5,000"
            " newer entries are missing.” The API also has it as a field, `indexes`. An export waits until the entries"
            " that it is about are indexed, and a download becomes a file made in the background. Alerts wait too: each"
            " match is sent once."
        ),
    ]


def _words(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def _first(entity: str) -> str:
    """A short condition of rows of that entity."""
    first = next(iter(ENTITIES[entity].fields.values()))
    return example(ENTITIES[entity], first)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


__all__ = ["GRAMMAR", "example", "examples", "page"]
