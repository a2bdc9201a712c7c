"""What a coding agent and its user read when a call does not run."""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import orjson
from django.conf import settings

from api.endpoint import Call
from approvals.models import Gate, Vote
from display.urls_of_rows import URL_OF_ROW
from journal.models import Body
from ledger import refusals
from ledger.confirmations import CODE_HOST_LABELS
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.verdicts import table
from ledger.verdicts.table import Verdict

MAX_QUOTED: Final = 2_000  # characters of a result or of a reviewer's words
_ANSWERS: Final = ("deny", "deny_session", "request_changes")


def format_effect_handle(row: EffectRow) -> str:
    """Return the handle of an effect."""
    return f"e_{row.opened_position}"


def build_url(kind: str, identity: object) -> str:
    """Return the address of a page, for a link in a text."""
    return f"{settings.GATEBOOK_URL}{URL_OF_ROW[kind](_Keyed(identity))}"


class _Keyed:
    """An id in the place of a row, for addresses that need no more."""

    def __init__(self, identity: object) -> None:
        self.pk = identity


def describe_wait(row: EffectRow, defers: bool) -> str:
    """Return the words for a call that waits for people."""
    gate = _find_gate(row)
    link = build_url("gate", gate) if gate is not None else build_url("effect", row.id)
    until = ""
    if row.permission_until_us is not None:
        moment = datetime.fromtimestamp(row.permission_until_us / 1_000_000, UTC)
        until = f" The request ends at {moment:%Y-%m-%d %H:%M} UTC."
    next_step = (
        "This run ends now. After the approval, continue it with `claude --continue`."
        if defers
        else "Do not try another way to do the same. After the approval, make exactly this call"
        " again; it then runs once."
    )
    return (
        f"Gatebook: {format_effect_handle(row)} ({row.tool}) waits for approval at {link}.{until}"
        f" It was not executed. {next_step}"
    )


def _find_gate(row: EffectRow) -> UUID | None:
    if not row.permission_ref or row.permission_basis == "exemption":
        return None
    return UUID(hex=row.permission_ref)


def describe_denial(call: Call, row: EffectRow) -> str:
    """Return the words for a call that rules or people refused, with the reviewer's reason."""
    refusal = refusals.refuse_without_permission(row)
    lines = [f"Gatebook: {format_effect_handle(row)} ({row.tool}): {refusal.sentence}"]
    reason = _load_reviewer_words(call, row)
    if reason:
        lines.append(f"The reviewer wrote: {reason}")
    elif row.permission == "denied" and row.permission_basis == "policy":
        lines.append(f"The rule {row.policy_rule} forbids it.")
    lines.append(build_url("effect", row.id))
    return "\n".join(lines)


def _load_reviewer_words(call: Call, row: EffectRow) -> str:
    """Return the reason of the last vote against the effect."""
    gates = Gate.objects.filter(project=call.project, effect=row.id)
    gate = gates.order_by("-opened_position").values_list("id", flat=True).first()
    if gate is None:
        return ""
    votes = Vote.objects.filter(gate=gate, answer__in=_ANSWERS).order_by("-position")
    position = votes.values_list("position", flat=True).first()
    text = Body.objects.filter(entry=position).values_list("text", flat=True).first()
    return str(orjson.loads(text).get("reason") or "")[:MAX_QUOTED] if text else ""


def describe_done(row: EffectRow, attempt: AttemptRow | None) -> str:
    """Return the words for a call that was done before, with its stored result."""
    words = (
        f"Gatebook: {format_effect_handle(row)} ({row.tool}) was done before with outcome"
        f" {row.outcome}. It was not executed again."
    )
    if row.external_reference:
        words += f" Reference: {row.external_reference}."
    result = load_result_text(attempt)
    if result:
        words += f" Its result was:\n{result}"
    return f"{words}\n{build_url('effect', row.id)}"


def describe_settled(row: EffectRow, words: str) -> str:
    """Return the words for a call of which others said how it ended; `words` are a person's."""
    name = f"{format_effect_handle(row)} ({row.tool})"
    if row.state == "superseded":
        text = (
            f"Gatebook: a person abandoned {name}: it may have happened, and nobody will know."
            " It was not executed again."
        )
    elif row.resolution == "happened":
        text = f"Gatebook: {name} was done: a person stated that it happened. It was not executed"
        text += " again."
    else:
        host = CODE_HOST_LABELS.get(row.confirmed_by, row.confirmed_by)
        text = f"Gatebook: {name} was done: {host} confirmed it. It was not executed again."
    if row.external_reference:
        text += f" Reference: {row.external_reference}."
    if words:
        text += f" The person wrote: {words[:MAX_QUOTED]}"
    return f"{text}\n{build_url('effect', row.id)}"


def load_result_text(attempt: AttemptRow | None) -> str:
    """Return the beginning of the stored result of an attempt; empty if there is none."""
    if attempt is None or attempt.answer_position is None:
        return ""
    bodies = Body.objects.filter(entry=attempt.answer_position)
    text = bodies.values_list("text", flat=True).first()
    result = orjson.loads(text).get("result") if text else None
    if result is None:
        return ""
    shown = result if isinstance(result, str) else orjson.dumps(result).decode()
    return shown[:MAX_QUOTED]


def describe_closed(row: EffectRow) -> str:
    """Return the words for a call whose effect was withdrawn or undone."""
    return (
        f"Gatebook: {format_effect_handle(row)} ({row.tool}) is {row.state}. It was not executed."
        f" {build_url('effect', row.id)}"
    )


def describe_other_target(row: EffectRow) -> str:
    """Return the words for a call whose folder has another remote or branch than at its plan."""
    return (
        f"Gatebook: {format_effect_handle(row)} ({row.tool}) was planned for another repository or"
        " branch than this folder has now. It was not executed. Go back to that branch, or make"
        f" the call again, which then asks for this one. {build_url('effect', row.id)}"
    )


def describe_doubt(row: EffectRow, verdict: Verdict) -> str:
    """Return the words for a call that may have been executed by a process that died."""
    words = table.describe_verdict(verdict, f"{format_effect_handle(row)} ({row.tool})")
    return (
        f"Gatebook: this call began before and no result was reported. {words}"
        f" It was not executed again. {build_url('effect', row.id)}"
    )
