"""The verdict table in words: what the pages say of a verdict, and the page that lists its rows. Knows no database.

`ROWS` is the table of ledger/verdicts.py, row by row; a test holds that every verdict it can give stands here.
"""

from typing import Final, NamedTuple

from ledger.verdicts import Verdict


class Row(NamedTuple):
    """One row of the table. `when` and `then` are for the list; `changes` says what would change the verdict."""

    number: str
    when: str
    reasons: tuple[str, ...]
    then: str
    changes: str


_LATE: Final = "Late evidence is still accepted."
_PERSON: Final = f"An answer of a person. {_LATE}"
_LOOK: Final = "A look at the remote that finds it, or finds nothing after the fence."

ROWS: Final = (
    Row("0", "A stop stands on the effect, its session, agent, tool or project", ("HELD",), "wait",
        "Somebody lifts the stop."),
    Row("1", "Another worker's lease on the work is alive", ("LEASE_HELD",), "wait",
        "The worker answers, or its lease ends."),
    Row("2", "Planned, and leave needs no ruling", ("NOT_DISPATCHED",), "run", "Its dispatch."),
    Row("3", "Planned, and people are asked", ("GATE_PENDING",), "wait", "A ruling, or the end of its time."),
    Row("4", "Leave was refused, or nobody ruled in time", ("GATE_DENIED", "GATE_EXPIRED"),
        "skip, and supersede it; where it may have happened a person decides",
        "Nothing: what was refused stays so. A new effect may be planned."),
    Row("5", "Planned, and people approved exactly this", ("APPROVED",), "run, and use the leave", "Its dispatch."),
    Row("6", "Leave was given for another intent, or is spent", ("INTENT_MISMATCH",), "a person decides",
        "A new effect with leave of its own, or a person who abandons this one."),
    Row("6b", "Planned, and leave was withdrawn, has lapsed, or was never asked for", ("GATE_GONE", "NO_LEAVE"),
        "ask for leave again", "Planning it again."),
    Row("7", "Acknowledged, and its outcome is known", ("DONE",), "skip, and use the stored reference", "Nothing."),
    Row("8", "Compensated or superseded", ("CLOSED",), "skip", "Nothing."),
    Row("9", "Failed, and the remote said no, or a person said that it did not happen", ("REJECTED_CLEAN",),
        "replay under leave of its own, with a new remote key", "Planning it again."),
    Row("9b", "Failed, and no attempt is left", ("ATTEMPTS_SPENT",),
        "skip; where an attempt before may have happened a person decides", "Nothing. A new effect may be planned."),
    Row("10", "Failed by timeout or error, or acknowledged as unknown", (), "as if it were dispatched: rows 11b to 26",
        ""),
    Row("11", "Its compensation is open", ("COMP_RESUME",), "the compensation's own verdict",
        "What becomes of the compensation."),
    Row("11b", "A person asked for its compensation", ("RESOLVED", "UNDO_FAILED"),
        "compensate; where that came to nothing a person decides",
        "A compensation that is acknowledged, or another answer of a person."),
    Row("12", "Somebody without a say reported that it happened", ("EVIDENCE",), "skip", "Nothing."),
    Row("13", "Dispatched, and the tool changes nothing", ("HARMLESS",), "replay", "Its answer."),
    Row("14", "Dispatched, and it sets a state that its plan guards", ("GUARDED_PUT",), "replay with the guard",
        "Its answer."),
    Row("15", "Dispatched, it sets a state, and nothing later touched the resource", ("PUT_LATEST",), "replay",
        "Its answer, or a later effect on the resource."),
    Row("16", "The same, and a later effect on the resource exists", ("STALE_PUT", "FENCE_UNKNOWN"),
        "look it up, else a person decides", _LOOK),
    Row("17", "Dispatched, and the remote still knows our key", ("KEY_LIVE",), "replay with the same remote key",
        "The end of the time for which the remote keeps our key."),
    Row("18", "Dispatched, and the remote has forgotten our key", ("KEY_EXPIRED", "FENCE_UNKNOWN"),
        "look it up, else a person decides", _LOOK),
    Row("19", "Dispatched, and finding the remote's record decides", ("REF_PROBE", "FENCE_UNKNOWN"),
        "look it up: found, skip; absent after the fence, replay", _LOOK),
    Row("20", "Dispatched, looked up and not found, and a request may still be on its way", ("FENCE_WAIT",), "wait",
        "The fence: until then a request that was sent may still arrive."),
    Row("21", "Dispatched, and it can be looked up by our key", ("PROBED_ABSENT", "FENCE_UNKNOWN"),
        "look it up: found, skip; absent after the fence, replay with the same remote key", _LOOK),
    Row("22", "Looking it up fails", ("PROBE_FAILED",), "wait and look again; after the last look a person decides",
        f"A look that succeeds, or an answer of a person. {_LATE}"),
    Row("23", "A look found two or more", ("DUPLICATE_FOUND",),
        "compensate the extras, else a person decides", _PERSON),
    Row("24", "Dispatched, and it can be undone by our key or by the reference we have",
        ("CANCEL_THEN_REDO", "UNDO_FAILED"),
        "compensate, then a new attempt with a new remote key; where that came to nothing a person decides",
        "A compensation that is acknowledged."),
    Row("25", "Dispatched, and it can be undone only by a reference that we lack", ("REF_LOST",),
        "look it up where that is possible, else a person decides", _PERSON),
    Row("26", "Anything else: an opaque or undeclared tool, or facts that are missing", ("UNDECIDABLE",),
        "a person decides", _PERSON),
)  # fmt: skip
BY_NUMBER: Final = {row.number: row for row in ROWS}

# The answer -> the word of its chip, and the class that colours it.
WORDS: Final = {
    "execute": ("RUN", "is-dispatched"),
    "wait": ("WAIT", "is-awaiting"),
    "ask": ("ASK", "is-awaiting"),
    "skip": ("SKIP", "is-ack"),
    "replay": ("REPLAY", "is-dispatched"),
    "probe": ("PROBE", "is-unknown"),
    "compensate": ("COMPENSATE", "is-compensated"),
    "escalate": ("HUMAN", "is-unknown"),
}
# The reason -> what stands beside the word, and why in a sentence.
_REASONS: Final = {
    "HELD": ("on hold", "A person has stopped it."),
    "LEASE_HELD": ("lease held", "Another worker that is alive has the work."),
    "NOT_DISPATCHED": (
        "not dispatched",
        "It was planned, leave needs no ruling, and nothing of it was dispatched.",
    ),
    "GATE_PENDING": ("people are asked", "People have not ruled yet."),
    "GATE_DENIED": ("denied", "Leave was refused."),
    "GATE_EXPIRED": ("nobody ruled", "Nobody ruled in time, and that is a no."),
    "APPROVED": ("approved", "People approved exactly this, and nothing of it was dispatched."),
    "INTENT_MISMATCH": ("other leave", "Its leave was given for something else, or is spent."),
    "GATE_GONE": ("leave is gone", "The leave that it had, or had asked for, is gone."),
    "NO_LEAVE": ("no leave", "It has no leave."),
    "DONE": ("done", "It happened, and its outcome is known."),
    "CLOSED": ("closed", "It was undone or given up."),
    "REJECTED_CLEAN": ("did not happen", "Its last attempt did not happen."),
    "ATTEMPTS_SPENT": ("attempts spent", "Its last attempt did not happen, and no other is left."),
    "COMP_RESUME": (
        "its compensation",
        "Its compensation is open, and this is what holds for that.",
    ),
    "RESOLVED": ("a person asked", "A person asked for its compensation."),
    "EVIDENCE": ("late evidence", "A worker that had lost its say reported that it happened."),
    "HARMLESS": ("changes nothing", "Its tool changes nothing, so it may run again."),
    "GUARDED_PUT": ("guarded", "It sets a state, and its plan says what must still be true."),
    "PUT_LATEST": ("nothing newer", "It sets a state, and nothing later touched the resource."),
    "STALE_PUT": ("overtaken", "It sets a state, and a later effect on the same resource exists."),
    "KEY_LIVE": (
        "remote knows the key",
        "The remote still knows its key, and does the same thing once.",
    ),
    "KEY_EXPIRED": ("key forgotten", "The remote has forgotten its key."),
    "REF_PROBE": ("look it up", "Finding the remote's record decides."),
    "FENCE_WAIT": ("fence", "It was not found, and a request that was sent may still arrive."),
    "PROBED_ABSENT": ("look it up", "It can be looked up by its key."),
    "PROBE_FAILED": ("looks fail", "Looking it up has failed."),
    "DUPLICATE_FOUND": ("found twice", "A look found more than one."),
    "CANCEL_THEN_REDO": ("undo, then again", "It can be undone by what we know of it."),
    "REF_LOST": ("reference lost", "It can be undone only by a reference that nobody told."),
    "UNDO_FAILED": ("undoing failed", "Its compensation was refused, and none is open."),
    "FENCE_UNKNOWN": (
        "no fence",
        "It was not found, and when it was sent is not in the book: it may still arrive.",
    ),
    "UNDECIDABLE": ("undecidable", "Nobody can know whether it happened."),
}
_LOOKED: Final = ("STALE_PUT", "KEY_EXPIRED", "REF_PROBE", "PROBED_ABSENT", "REF_LOST")
_OPAQUE: Final = {
    "opaque": "Nobody can know whether it happened: the tool takes no key, cannot be looked up and cannot be undone.",
    "": "Nobody can know whether it happened: nobody declared what the tool can tell.",
}


def short(verdict: Verdict) -> str:
    """The words beside the verb of a chip: done, fence, undecidable."""
    if verdict.reason in _LOOKED and verdict.answer == "skip":
        return "found"
    if verdict.reason in _LOOKED and verdict.answer == "replay":
        return "looked up, absent"
    if verdict.reason == "PROBE_FAILED" and verdict.answer == "probe":
        return "look again"
    return _REASONS[verdict.reason][0]


def because(verdict: Verdict, tool_class: str = "opaque") -> str:
    """Why, in one sentence. `tool_class` is that of the declaration, empty for a tool that nobody declared."""
    if verdict.reason in _LOOKED and verdict.answer == "skip":
        return "A look found it: it happened."
    if verdict.reason in _LOOKED and verdict.answer == "replay":
        return "It was looked up after every request had died, and it was not there."
    if verdict.reason in _LOOKED and verdict.answer == "escalate":
        return f"{_REASONS[verdict.reason][1].removesuffix('.')}, and it cannot be looked up: nobody can know."
    if verdict.row == "11" and verdict.beneath:
        return f"Its compensation is open. Of that: {_REASONS[verdict.beneath][1]}"
    if verdict.row == "26" and tool_class in _OPAQUE:
        return _OPAQUE[tool_class]
    return _REASONS[verdict.reason][1]


def changes(verdict: Verdict) -> str:
    """What would change the verdict."""
    if verdict.answer == "escalate" and verdict.reason != "INTENT_MISMATCH":
        return _PERSON
    return BY_NUMBER[verdict.row].changes
