"""README.md of a bundle: what a person asks of the session, in that order.

Agents' text stands in it on one line and as text: what Markdown or a terminal would take for more is escaped or shown
as a token, as on the pages (journal/untrusted.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from approvals import words
from journal import untrusted

_CELL: Final = 100  # characters of a cell
_MARKDOWN: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>()#!|~&:@"})
_CLOSED: Final = ("compensated", "superseded")


def text(raw: str, limit: int = _CELL) -> str:
    """Agents' text on one line of Markdown: nothing in it is a sign, a link or hidden."""
    shown = "".join(
        piece.shown or piece.raw for piece in untrusted.pieces(raw[:limit], one_line=True)
    )
    return shown.translate(_MARKDOWN) + ("…" if len(raw) > limit else "")


def moment(us: int | None) -> str:
    """A time of the book as people read it."""
    if us is None:
        return "not told"
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def beginning(head: dict[str, Any], effects: int) -> Iterator[str]:
    """What the session is, for whom, and what became of it."""
    one, origin = head["session"], head["origin"]
    yield f"# {origin['handle']} {text(one['title'] or one['key'], 200)}"
    yield ""
    yield "A session of AI agents as a Gatebook recorded it. `bundle.json` tells the same to programs and more of it;"
    yield "`schema.json` is its form, `SHA256SUMS` holds the hash of every file (`sha256sum -c SHA256SUMS`)."
    yield ""
    on_behalf = (
        f", on behalf of {head['on_behalf_of']} by its own word" if head["on_behalf_of"] else ""
    )
    owner = f", of {head['owner']}" if head["owner"] else ""
    where = text(one["repository"]) if one["repository"] else "none named"
    branch = f"@{text(one['branch'])}" if one["branch"] else ""
    for name, value in (
        ("Project", text(origin["project_name"])),
        ("Agent", f"{text(one['agent'])}{on_behalf}{owner}"),
        ("Repository", where + branch),
        ("Status", f"{one['status']}, mode {one['mode']}"),
        (
            "Started, ended (agent's clock)",
            f"{moment(one['started_at_us'])}, {moment(one['ended_at_us'])}",
        ),
        (
            "First heard of, last seen (server)",
            f"{moment(one['created_at_us'])}, {moment(one['seen_at_us'])}",
        ),
        (
            "Cut",
            f"position {head['cut']['position']} of the journal, {moment(head['cut']['at_us'])}",
        ),
        ("Effects", str(effects)),
        ("Can it resume safely? As of the cut", head["resume"]["sentence"]),
    ):
        yield f"- **{name}**: {value}"


@dataclass(slots=True)
class Doubts:
    """What is told of single effects beneath their table: whose outcome nobody knows, and which went against a rule."""

    unknown: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)

    def look(self, one: dict[str, Any]) -> None:
        """Note what is to be told of this effect."""
        handle = f"e_{one['opened_position']} {text(one['tool'])}".strip()
        verdict = f"Verdict: {one['verdict']['answer']}, {one['verdict']['reason']}."
        if one["state"] == "dispatched":
            late = f"its deadline {moment(one['deadline_us'])}"
            told = f"dispatched {moment(one['dispatched_at_us'])}, {late}, and no answer came before the cut"
            self.unknown.append(f"- {handle}: {told}. {verdict}")
        elif one["outcome"] == "unknown" and one["state"] not in _CLOSED:
            self.unknown.append(f"- {handle}: {one['state']}, outcome unknown. {verdict}")
        if one["violates"]:
            self.against.append(f"- {handle}: {one['state']} under leave {one['leave']}.")


def of_effects(rows: Iterable[dict[str, Any]], doubts: Doubts) -> Iterator[str]:
    """The effects as a table; `doubts` looks at each of them."""
    yield from ("", "## Effects", "")
    yield "| effect | tool | state | outcome | leave | attempts | planned (agent) | reference |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in rows:
        doubts.look(one)
        leave = f"{one['leave']}, {one['leave_basis']}" if one["leave_basis"] else one["leave"]
        cells = (
            *(
                f"e_{one['opened_position']}",
                text(one["tool"]) or "not known",
                one["state"],
                one["outcome"] or "-",
            ),
            *(
                leave,
                str(one["attempt_count"]),
                moment(one["planned_at_us"]),
                text(one["external_reference"]) or "-",
            ),
        )
        yield f"| {' | '.join(cells)} |"


def of_gates(
    rows: Iterable[dict[str, Any]], handles: dict[str, str], reasons: dict[int, str | None]
) -> Iterator[str]:
    """The gates with their rulings. `handles` are those of effects by id, `reasons` what voters wrote, by position."""
    yield from ("", "## Gates", "")
    seen = False
    for one in rows:
        seen = True
        rule = f"{one['policy_set'] or 'no policy set'}/{one['rule'] or 'no rule'}"
        yield (
            f"- **g_{one['opened_position']}** of {handles.get(str(one['effect']), 'an effect')} {text(one['tool'])}:"
            f" {words.STATUSES[one['status']][0]}. Asked {moment(one['requested_at_us'])} by {text(rule)},"
            f" needs {one['minimum']}; to be decided by {moment(one['decide_by_us'])}."
        )
        for vote in one["votes"]:
            said = reasons.get(vote["position"])
            because = f": {text(said, 300)}" if said else ""
            yield f"  - {vote['actor']} {words.ANSWERS[vote['answer']][0]}, {moment(vote['voted_at_us'])}{because}"
    if not seen:
        yield "Nobody was asked for anything."


def of_exemptions(rows: Iterable[dict[str, Any]], reasons: dict[int, str | None]) -> Iterator[str]:
    """The exemptions under which effects went without being asked about."""
    found = [
        f"- of {text(one['tool'])}, granted by {one['granted_by']} {moment(one['granted_at_us'])} until"
        f" {moment(one['ends_at_us'])}, used {one['uses']} time{'' if one['uses'] == 1 else 's'} in all:"
        f" {text(reasons.get(one['opened_position']) or 'reason erased', 300)}"
        for one in rows
    ]
    if found:
        yield from ("", "## Exemptions used", "", *found)


def of_doubts(doubts: Doubts) -> Iterator[str]:
    """What nobody knows, and what went against a rule."""
    known = ["Nothing: every effect that was begun has an answer."]
    yield from ("", "## What is unknown", "", *(doubts.unknown or known))
    kept = ["No integrity violation is recorded of its effects."]
    yield from ("", "## Against a rule", "", *(doubts.against or kept))


def ending(head: dict[str, Any], diffs: int, artifacts: int) -> Iterator[str]:
    """What else lies in the bundle, and what does not."""
    yield from ("", "## Beside this file", "")
    yield f"{diffs} diff{'' if diffs == 1 else 's'} of what effects were to change, read out of their arguments;"
    yield f"{artifacts} artifact{'' if artifacts == 1 else 's'} by content hash."
    yield from ("", "## Left out", "")
    for one in head["left_out"]:
        yield f"- {one['what']}: {one['why']}."
