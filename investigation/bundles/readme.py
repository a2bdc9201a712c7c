"""README.md of a bundle: a summary of the session for people.

Agents' text is on one line and escaped: Markdown, links and hidden characters are shown as text or
tokens, as on the pages (web/untrusted_text.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from approvals import labels
from proofs.models import TreeHead
from web import untrusted_text

_CELL: Final = 100  # characters of a cell
_MARKDOWN: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>()#!|~&:@"})
_CLOSED: Final = ("compensated", "superseded")


def escape_markdown(raw: str, limit: int = _CELL) -> str:
    """Escape agents' text for one line of Markdown."""
    shown = "".join(
        piece.shown or piece.raw
        for piece in untrusted_text.split_untrusted(raw[:limit], one_line=True)
    )
    return shown.translate(_MARKDOWN) + ("…" if len(raw) > limit else "")


def format_time(us: int | None) -> str:
    """Format a time for people."""
    if us is None:
        return "not reported"
    return datetime.fromtimestamp(us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def head_lines(head: dict[str, Any], effects: int) -> Iterator[str]:
    """Yield the head: session, project, agent, status and resume state."""
    row, origin = head["session"], head["origin"]
    yield f"# {origin['handle']} {escape_markdown(row['title'] or row['key'], 200)}"
    yield ""
    yield "A session of AI agents as recorded by Gatebook. `bundle.json` has the full data for"
    yield "programs, `schema.json` its JSON Schema, and `SHA256SUMS` the hash of every file"
    yield "(`sha256sum -c SHA256SUMS`)."
    yield ""
    on_behalf = (
        f", on behalf of {head['on_behalf_of']} (claimed by the agent)"
        if head["on_behalf_of"]
        else ""
    )
    owner = f", owner {head['owner']}" if head["owner"] else ""
    where = escape_markdown(row["repository"]) if row["repository"] else "none named"
    branch = f"@{escape_markdown(row['branch'])}" if row["branch"] else ""
    for name, value in (
        ("Project", escape_markdown(origin["project_name"])),
        ("Agent", f"{escape_markdown(row['agent'])}{on_behalf}{owner}"),
        ("Repository", where + branch),
        ("Status", f"{row['status']}, mode {row['mode']}"),
        (
            "Started, ended (agent's clock)",
            f"{format_time(row['started_at_us'])}, {format_time(row['ended_at_us'])}",
        ),
        (
            "First seen, last seen (server time)",
            f"{format_time(row['created_at_us'])}, {format_time(row['seen_at_us'])}",
        ),
        (
            "Cut",
            f"journal position {head['cut']['position']}, {format_time(head['cut']['at_us'])}",
        ),
        ("Effects", str(effects)),
        ("Can it resume safely (at the cut)", head["resume"]["sentence"]),
    ):
        yield f"- **{name}**: {value}"


@dataclass(slots=True)
class UncertainEffects:
    """Effects listed below the table: unknown outcomes and integrity violations."""

    unknown: list[str] = field(default_factory=list)
    against: list[str] = field(default_factory=list)

    def add_row(self, row: dict[str, Any]) -> None:
        """Collect the lines of one effect."""
        handle = f"e_{row['opened_position']} {escape_markdown(row['tool'])}".strip()
        verdict = f"Verdict: {row['verdict']['answer']}, {row['verdict']['reason']}."
        if row["state"] == "dispatched":
            times = (
                f"dispatched {format_time(row['dispatched_at_us'])},"
                f" deadline {format_time(row['deadline_us'])}"
            )
            self.unknown.append(f"- {handle}: {times}, no result before the cut. {verdict}")
        elif row["outcome"] == "unknown" and row["state"] not in _CLOSED:
            self.unknown.append(f"- {handle}: {row['state']}, outcome unknown. {verdict}")
        if row["violates"]:
            self.against.append(f"- {handle}: {row['state']} with permission {row['permission']}.")


def effect_lines(rows: Iterable[dict[str, Any]], doubts: UncertainEffects) -> Iterator[str]:
    """Yield the table of effects; `doubts` collects from each."""
    yield from ("", "## Effects", "")
    yield (
        "| effect | tool | state | outcome | permission | attempts | planned (agent) | reference |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        doubts.add_row(row)
        permission = (
            f"{row['permission']}, {row['permission_basis']}"
            if row["permission_basis"]
            else row["permission"]
        )
        cells = (
            f"e_{row['opened_position']}",
            escape_markdown(row["tool"]) or "unknown",
            row["state"],
            row["outcome"] or "-",
            permission,
            str(row["attempt_count"]),
            format_time(row["planned_at_us"]),
            escape_markdown(row["external_reference"]) or "-",
        )
        yield f"| {' | '.join(cells)} |"


def gate_lines(
    rows: Iterable[dict[str, Any]], handles: dict[str, str], reasons: dict[int, str | None]
) -> Iterator[str]:
    """Yield the gates with votes. `handles` are by effect id, `reasons` by the vote's position."""
    yield from ("", "## Gates", "")
    seen = False
    for row in rows:
        seen = True
        rule = f"{row['policy_set'] or 'no policy set'}/{row['rule'] or 'no rule'}"
        yield (
            f"- **g_{row['opened_position']}** of"
            f" {handles.get(str(row['effect']), 'an effect')} {escape_markdown(row['tool'])}:"
            f" {labels.STATUS_LABELS[row['status']][0]}. Requested "
            f"{format_time(row['requested_at_us'])}"
            f" by {escape_markdown(rule)}, needs {row['minimum']};"
            f" decision due {format_time(row['decide_by_us'])}."
        )
        for vote in row["votes"]:
            reason = reasons.get(vote["position"])
            because = f": {escape_markdown(reason, 300)}" if reason else ""
            answer = labels.VOTE_ANSWER_LABELS[vote["answer"]][0]
            yield f"  - {vote['actor']} {answer}, {format_time(vote['voted_at_us'])}{because}"
    if not seen:
        yield "No approvals were requested."


def exemption_lines(
    rows: Iterable[dict[str, Any]], reasons: dict[int, str | None]
) -> Iterator[str]:
    """Yield the exemptions that let effects skip approval."""
    lines = [
        f"- of {escape_markdown(row['tool'])}, granted by {row['granted_by']} "
        f"{format_time(row['granted_at_us'])}"
        f" until {format_time(row['ends_at_us'])},"
        f" used {row['uses']} time{'' if row['uses'] == 1 else 's'} in all:"
        f" {escape_markdown(reasons.get(row['opened_position']) or 'reason erased', 300)}"
        for row in rows
    ]
    if lines:
        yield from ("", "## Exemptions used", "", *lines)


def uncertain_lines(doubts: UncertainEffects) -> Iterator[str]:
    """Yield the sections of unknown outcomes and integrity violations."""
    none_unknown = ["None: every dispatched effect has a result."]
    yield from ("", "## Unknown outcomes", "", *(doubts.unknown or none_unknown))
    none_against = ["None recorded."]
    yield from ("", "## Integrity violations", "", *(doubts.against or none_against))


def proof_lines(head: TreeHead) -> Iterator[str]:
    """Yield how to check that the entries are those of the journal."""
    yield from ("", "## Proofs", "")
    yield f"The entries are sealed under tree head {head.id} of {head.key_name}, made"
    yield f"{format_time(head.made_at_us)}. Check them without Gatebook (Python 3.11, `pip install"
    yield "cryptography`):"
    yield ""
    yield "    python3 gatebook_verify.py bundle FILE.zip --key KEY"
    yield ""
    yield "KEY is the public key of the installation, which you get from its operators and not from"
    yield "this file. A verifier that you got another way is better than the enclosed one. Rows of"
    yield "effects and gates follow from the entries; only the entries are proved."


def tail_lines(head: dict[str, Any], diffs: int, artifacts: int) -> Iterator[str]:
    """Yield the other contents of the bundle, and what it leaves out."""
    yield from ("", "## Other files", "")
    yield f"{diffs} diff{'' if diffs == 1 else 's'} of planned file changes, from the arguments;"
    yield f"{artifacts} artifact{'' if artifacts == 1 else 's'} by content hash."
    yield from ("", "## Left out", "")
    for row in head["left_out"]:
        yield f"- {row['what']}: {row['why']}."
