"""Load the tables of a case file: effects, requests, exemptions, people, exhibits, timeline.

Every cell is a plain value, so that the page, the CSV files and the JSON files show the same. Texts
that are missing are named as erased, with the reason, or as not stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Q

from accounts.models import Person, Project
from approvals import labels
from approvals.models import Exemption, Gate, Vote
from display import display_state
from display.entry_bodies import cut_excerpt
from display.run_times import derive_run_time
from investigation.bundles.collect import is_enclosed
from investigation.case_files.case_selection import CaseSelection
from investigation.query.column_types import Reader, format_moment_us
from journal.entry_times import read_stated_us
from journal.models import Body, Entry, Erasure
from journal.summaries import parse_body
from ledger.models import Attempt
from proofs import proof_document
from proofs.models import SealedEntry, TreeHead
from sessions.models import Artifact

MAX_ENTRIES: Final = 5_000  # of the timeline, the newest
MAX_EXHIBITS: Final = 500
MAX_TEXT_BYTES: Final = 65_536  # of one text; the journal has the rest
_AT_ONCE: Final = 500
# Reading the journal is not what happened.
_LEFT_OUT: Final = ("access.searched", "access.exported")


Columns = tuple[tuple[str, str], ...]
_TIMELINE: Final[Columns] = (
    ("position", "Entry"),
    ("at", "Received"),
    ("occurred", "Occurred, as reported"),
    ("kind", "Kind"),
    ("lane", "Lane"),
    ("who", "Who"),
    ("of", "About"),
    ("words", "Words"),
)
_EFFECTS: Final[Columns] = (
    ("effect", "Effect"),
    ("at", "First seen"),
    ("ran", "Ran at"),
    ("ran_by", "Source of the time"),
    ("tool", "Tool"),
    ("state", "State"),
    ("outcome", "Outcome"),
    ("session", "Session"),
    ("agent", "Agent"),
    ("repository", "Repository"),
    ("ref", "Ref"),
    ("reference", "External reference"),
    ("permission", "Permission"),
    ("violates", "Violates integrity"),
    ("attempts", "Attempts"),
    ("arguments", "Arguments"),
    ("results", "Results"),
    ("intent", "Intent digest"),
    ("plan_position", "Entry of the plan"),
)
_REQUESTS: Final[Columns] = (
    ("request", "Request"),
    ("effect", "Effect"),
    ("requested", "Requested"),
    ("tool", "Tool"),
    ("status", "Status"),
    ("decided", "Decided"),
    ("rule", "Policy rule"),
    ("risk", "Risk"),
    ("reversibility", "Reversibility"),
    ("minimum", "People needed"),
    ("shown", "Arguments shown"),
    ("digest", "Digest"),
)
_VOTES: Final[Columns] = (
    ("request", "Request"),
    ("person", "Person"),
    ("answer", "Answer"),
    ("voted", "Voted"),
    ("shown", "Shown"),
    ("seconds", "Seconds between"),
    ("saw_everything", "Saw everything"),
    ("words", "Words"),
    ("shown_digest", "Digest shown"),
    ("card_sha256", "SHA-256 of the page shown"),
    ("position", "Entry"),
)
_EXEMPTIONS: Final[Columns] = (
    ("exemption", "Exemption"),
    ("tool", "Tool"),
    ("rule", "Rule"),
    ("agent", "Agent"),
    ("granted", "Granted"),
    ("granted_by", "Granted by"),
    ("ends", "Ends"),
    ("revoked", "Revoked"),
    ("uses", "Uses"),
    ("words", "Words"),
)
_PEOPLE: Final[Columns] = (
    ("person", "Person"),
    ("role", "Role now"),
    ("saw", "Saw"),
    ("did", "Did"),
)
_EXHIBITS: Final[Columns] = (
    ("exhibit", "Exhibit"),
    ("name", "Name"),
    ("effect", "Effect"),
    ("media_type", "Media type"),
    ("bytes", "Bytes"),
    ("sha256", "SHA-256"),
    ("enclosed", "Enclosed"),
)


@dataclass(frozen=True, slots=True)
class CaseTable:
    """One table. Columns are (name, label); rows have a value for each column."""

    name: str
    title: str
    columns: Columns
    rows: list[dict[str, Any]]


@dataclass
class CaseFile:
    """A case file as of `position`, made by a person at `made_us`."""

    project: Project
    selection: CaseSelection
    title: str
    made_by: str
    pseudonym: str
    made_us: int
    position: int
    missing: list[dict[str, Any]] = field(default_factory=list)  # texts that cannot be shown
    is_timeline_cut: bool = False

    @property
    def made_at(self) -> str:
        """Return the time of its making, in UTC."""
        return format_moment_us(self.made_us) or ""

    @cached_property
    def head(self) -> TreeHead | None:
        """The tree head that seals its entries; None before the first seal."""
        return proof_document.load_covering_head(self.position)

    @cached_property
    def sealed_to(self) -> int | None:
        """The last entry of the case file's span that the head covers."""
        if self.head is None:
            return None
        sealed = SealedEntry.objects.filter(log_index__lt=self.head.size, entry__lte=self.position)
        return sealed.order_by("-entry_id").values_list("entry_id", flat=True).first()

    @cached_property
    def ids(self) -> dict[UUID | None, str]:
        """Handles of its effects by id."""
        return {effect.pk: str(effect) for effect in self.selection.effects}

    @cached_property
    def attempts(self) -> dict[UUID, list[Attempt]]:
        """Attempts of its effects by effect, in order."""
        attempts: dict[UUID, list[Attempt]] = {}
        for part in _split(list(self.ids)):
            for row in Attempt.objects.filter(effect__in=part).order_by("effect", "number"):
                attempts.setdefault(row.effect_id, []).append(row)
        return attempts

    @cached_property
    def gates(self) -> list[Gate]:
        """Requests of its effects, in journal order."""
        rows: list[Gate] = []
        for part in _split(list(self.ids)):
            rows += Gate.objects.filter(effect__in=part, project=self.project).order_by(
                "opened_position"
            )
        return sorted(rows, key=lambda gate: gate.opened_position)

    @cached_property
    def votes(self) -> dict[UUID, list[Vote]]:
        """Votes by request, in order."""
        votes: dict[UUID, list[Vote]] = {}
        for part in _split([gate.pk for gate in self.gates]):
            for vote in Vote.objects.filter(gate__in=part).order_by("position"):
                votes.setdefault(vote.gate_id, []).append(vote)
        return votes

    @cached_property
    def entries(self) -> list[Entry]:
        """The entries of the timeline, oldest first."""
        rows: dict[int, Entry] = {}
        conditions = [Q(effect__in=part) for part in _split(list(self.ids))]
        conditions += [Q(session__in=part) for part in _split(self.selection.sessions)]
        further = [*self.selection.positions, *(row.opened_position for row in self.exemptions)]
        conditions += [Q(position__in=part) for part in _split(further)]
        for condition in conditions:
            matching = Entry.objects.filter(
                condition, project=self.project.id, position__lte=self.position
            )
            matching = matching.exclude(kind__in=_LEFT_OUT).order_by("-position")
            for entry in matching[: MAX_ENTRIES + 1]:
                rows[entry.position] = entry
        newest = sorted(rows.values(), key=lambda entry: -entry.position)
        self.is_timeline_cut = len(newest) > MAX_ENTRIES
        return newest[:MAX_ENTRIES][::-1]

    @cached_property
    def exemptions(self) -> list[Exemption]:
        """Exemptions that let an effect of the case skip approval."""
        used: set[UUID] = set()
        for part in _split(list(self.ids)):
            uses = Entry.objects.filter(
                project=self.project.id, effect__in=part, kind="exemption.used", lane="system"
            )
            used.update(subject for subject in uses.values_list("subject", flat=True) if subject)
        rows = Exemption.objects.filter(project=self.project, pk__in=used)
        return list(rows.select_related("granted_by").order_by("opened_position"))

    @cached_property
    def artifacts(self) -> list[Artifact]:
        """Artifacts of its effects and sessions."""
        rows: dict[UUID, Artifact] = {}
        conditions = [Q(effect__in=part) for part in _split(list(self.ids))]
        conditions += [Q(session__in=part) for part in _split(self.selection.sessions)]
        for condition in conditions:
            chosen = Artifact.objects.filter(condition, project=self.project)
            for row in chosen.order_by("opened_position")[:MAX_EXHIBITS]:
                rows[row.pk] = row
        return sorted(rows.values(), key=lambda row: row.opened_position)[:MAX_EXHIBITS]

    @cached_property
    def names(self) -> Reader:
        """Names of people and agents."""
        return Reader(self.project, self.made_us)

    def name_actor(self, actor: str) -> str:
        """Return an actor as pages name it, with the pseudonym of a person."""
        name = self.names.called(actor)
        return f"{name} ({actor})" if actor.startswith("p_") and name != actor else name

    @cached_property
    def texts(self) -> dict[int, tuple[str | None, str]]:
        """Bodies by position: (text, "") or (None, why it is missing)."""
        positions = {effect.plan_position for effect in self.selection.effects}
        positions |= {row.answer_position for rows in self.attempts.values() for row in rows}
        positions |= {vote.position for votes in self.votes.values() for vote in votes}
        positions |= {exemption.opened_position for exemption in self.exemptions}
        positions |= {gate.plan_position for gate in self.gates}
        positions |= set(self.selection.positions)
        texts: dict[int, tuple[str | None, str]] = {}
        for part in _split(sorted(positions - {None})):
            bodies = Body.objects.filter(entry_id__in=part, entry__project=self.project.id)
            texts |= {
                position: (text, "") for position, text in bodies.values_list("entry", "text")
            }
            gone = [position for position in part if position not in texts]
            erasures = Erasure.objects.filter(entry__in=gone).values_list(
                "entry", "erased_at_us", "reason"
            )
            for position, erased_us, reason in erasures:
                texts[position] = (None, f"erased {format_moment_us(erased_us)}: {reason}")
        return texts

    def read_text(self, position: int | None, what: str, *names: str) -> str:
        """Return parts of a body as text; a missing body is named and listed in `missing`."""
        if position is None:
            return ""
        text, why = self.texts.get(position, (None, "not stored"))
        if text is None:
            row = {"position": position, "what": what, "why": why}
            if row not in self.missing:
                self.missing.append(row)
            return f"[{why}]"
        body = parse_body(text)
        parts = [_format_value(body[name]) for name in names if body.get(name) not in (None, "")]
        return _cut("\n".join(parts))

    @cached_property
    def tables(self) -> list[CaseTable]:
        """All tables, in the order of the document."""
        return [
            CaseTable("timeline", "Timeline", _TIMELINE, list(self._timeline_rows())),
            CaseTable("effects", "Effects", _EFFECTS, list(self._effect_rows())),
            CaseTable("requests", "Requests", _REQUESTS, list(self._request_rows())),
            CaseTable("votes", "Votes", _VOTES, list(self._vote_rows())),
            CaseTable("exemptions", "Exemptions", _EXEMPTIONS, list(self._exemption_rows())),
            CaseTable("people", "People", _PEOPLE, list(self._people_rows())),
            CaseTable("exhibits", "Exhibits", _EXHIBITS, list(self._exhibit_rows())),
        ]

    def _effect_rows(self) -> Iterator[dict[str, Any]]:
        for effect in self.selection.effects:
            attempts = self.attempts.get(effect.pk, [])
            ran = derive_run_time(attempts[-1] if attempts else None)
            yield {
                "effect": str(effect),
                "at": format_moment_us(effect.received_us),
                "ran": format_moment_us(ran.us),
                "ran_by": ran.source,
                "tool": effect.tool,
                "state": display_state.derive_shown_state(effect, self.made_us),
                "outcome": effect.outcome,
                "session": str(effect.session),
                "agent": effect.agent.name,
                "repository": effect.repository.name if effect.repository else "",
                "ref": effect.ref,
                "reference": effect.external_reference,
                "permission": " ".join(
                    word for word in (effect.permission, effect.permission_basis) if word
                ),
                "violates": "yes" if effect.violates else "",
                "attempts": effect.attempt_count,
                "arguments": self.read_text(
                    effect.plan_position, f"arguments of {effect}", "arguments"
                ),
                "results": "\n".join(
                    text
                    for row in attempts
                    if (
                        text := self.read_text(
                            row.answer_position,
                            f"result of {effect}, attempt {row.number}",
                            "result",
                            "detail",
                            "free_text",
                        )
                    )
                ),
                "intent": effect.intent_digest,
                "plan_position": effect.plan_position,
            }

    def _request_rows(self) -> Iterator[dict[str, Any]]:
        for gate in self.gates:
            yield {
                "request": str(gate),
                "effect": self.ids.get(gate.effect_id, ""),
                "requested": format_moment_us(gate.requested_at_us),
                "tool": gate.tool,
                "status": labels.STATUS_LABELS[gate.status][0],
                "decided": format_moment_us(gate.decided_at_us),
                "rule": gate.rule,
                "risk": gate.risk,
                "reversibility": gate.reversibility,
                "minimum": gate.minimum,
                "shown": self.read_text(gate.plan_position, f"what {gate} showed", "arguments"),
                "digest": gate.digest,
            }

    def _vote_rows(self) -> Iterator[dict[str, Any]]:
        for gate in self.gates:
            for vote in self.votes.get(gate.pk, []):
                yield {
                    "request": str(gate),
                    "person": self.name_actor(vote.actor),
                    "answer": labels.VOTE_ANSWER_LABELS[vote.answer][0],
                    "voted": format_moment_us(vote.voted_at_us),
                    "shown": format_moment_us(vote.shown_at_us),
                    "seconds": round((vote.voted_at_us - vote.shown_at_us) / 1_000_000, 1),
                    "saw_everything": "yes" if vote.view_complete else "no",
                    "words": self.read_text(vote.position, f"reason of a vote on {gate}", "reason"),
                    "shown_digest": vote.shown_digest,
                    "card_sha256": vote.card_sha256,
                    "position": vote.position,
                }

    def _exemption_rows(self) -> Iterator[dict[str, Any]]:
        for row in self.exemptions:
            yield {
                "exemption": f"x_{row.opened_position}",
                "tool": row.tool,
                "rule": row.rule,
                "agent": row.agent,
                "granted": format_moment_us(row.granted_at_us),
                "granted_by": row.granted_by.get_username(),
                "ends": format_moment_us(row.ends_at_us),
                "revoked": format_moment_us(row.revoked_at_us),
                "uses": row.uses,
                "words": self.read_text(
                    row.opened_position, f"reason of x_{row.opened_position}", "reason"
                ),
            }

    def _people_rows(self) -> Iterator[dict[str, Any]]:
        gates: dict[UUID | None, str] = {gate.pk: str(gate) for gate in self.gates}
        answers = {vote.position: vote.answer for votes in self.votes.values() for vote in votes}
        saw: dict[str, list[str]] = {}
        did: dict[str, list[str]] = {}
        for entry in self.entries:
            if not entry.actor.startswith("p_"):
                continue
            thing = gates.get(entry.subject) or self.ids.get(entry.effect) or f"#{entry.position}"
            saw.setdefault(entry.actor, [])
            acts = did.setdefault(entry.actor, [])
            when = format_moment_us(read_stated_us(entry))
            if entry.kind == "access.viewed":
                saw[entry.actor].append(f"{thing} at {when}")
            else:
                answer = answers.get(entry.position, "")
                acts.append(" ".join(filter(None, (entry.kind, answer, thing, "at", when))))
        roles = dict(
            Person.objects.filter(
                pseudonym__in=saw, user__memberships__project=self.project
            ).values_list("pseudonym", "user__memberships__role")
        )
        for actor in sorted(saw):
            yield {
                "person": self.name_actor(actor),
                "role": roles.get(actor, ""),
                "saw": "\n".join(saw[actor]),
                "did": "\n".join(did[actor]),
            }

    def _exhibit_rows(self) -> Iterator[dict[str, Any]]:
        for row in self.artifacts:
            yield {
                "exhibit": str(row),
                "name": row.name,
                "effect": self.ids.get(row.effect, "") if row.effect else "",
                "media_type": row.media_type,
                "bytes": row.size,
                "sha256": row.sha256,
                "enclosed": _describe_enclosure(row),
            }

    def _timeline_rows(self) -> Iterator[dict[str, Any]]:
        gates: dict[UUID | None, str] = {gate.pk: str(gate) for gate in self.gates}
        handles = {
            effect.pk: f"{effect} {effect.tool}".strip() for effect in self.selection.effects
        }
        for entry in self.entries:
            words = ""
            if entry.position in self.selection.positions:
                words = self.read_text(
                    entry.position, f"words of #{entry.position}", "title", "reason", "text"
                )
            yield {
                "position": entry.position,
                "at": format_moment_us(entry.received_us),
                "occurred": format_moment_us(entry.occurred_us),
                "kind": entry.kind,
                "lane": entry.lane,
                "who": self.name_actor(entry.actor),
                "of": " ".join(filter(None, (gates.get(entry.subject), handles.get(entry.effect)))),
                "words": words,
            }


def _split(values: "list[Any]") -> Iterator[list[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


def _cut(text: str) -> str:
    excerpt = cut_excerpt(text, MAX_TEXT_BYTES)
    return f"{excerpt.text}\n[cut: {excerpt.octets:,} bytes]" if excerpt.cut else text


def _describe_enclosure(row: Artifact) -> str:
    """Return whether the zip has the bytes of an artifact, and why it has not."""
    if is_enclosed(row):
        return "yes"
    if row.stored_at_us is None:
        return "no, only its hash is known"
    return "no, its stored bytes are lost or were changed"
