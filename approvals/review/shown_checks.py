"""Where the page of a request shows the results of its checks. Pure.

Warnings stand before the facts, and beside the fact that they concern. A contradiction also stands
on its words in the claim, under the same letter. Notices stand only beside their fact. All missing
evidence is one line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from approvals.checks.check_results import CheckResult, Compared
from approvals.review.call_titles import moves_refs
from approvals.review.card import SOURCE_UNKNOWN, CallArgument, Card, CardLine

MISSING_EVIDENCE: Final = "missing_evidence"  # the check whose results are one line
MAX_REPEATED: Final = 2  # more contradictions are listed above the facts, a line each
MAX_SIDE_CHARACTERS: Final = 420  # of a claim beside the arguments; longer ones scroll there
_WORST: Final = "Assume the worst."  # ends the line of missing evidence anyway
_REF_LABELS: Final = ("Repository", "Ref")  # nothing is missing of a call that moves no ref
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_TARGET_LABELS: Final = {
    "target.repository": "Repository",
    "target.ref": "Ref",
    "target.ref_class": "Ref class",
    "target.environment": "Environment",
    "target.resource": "Resource",
}
# A word in the id of a check -> the shape of its results in the sprite.
_SHAPES: Final = (
    ("denied", "failed"),
    ("contradiction", "unlike"),
    ("first", "first"),
    ("missing", "dash"),
)

# A value of the agent and the offsets of its characters that differ from a known value.
MarkedValue = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FactNote:
    """A result beside the fact that it concerns.

    `letter` and `phrase` are empty unless it contradicts words of the claim. `is_repeated`: it also
    stands before the facts, so this note is short. `fact` is the text of the fact, `anchor` the id
    of the note on its page.
    """

    result: CheckResult
    letter: str
    phrase: str
    is_repeated: bool
    fact: str = ""
    anchor: str = ""

    @property
    def compared(self) -> tuple[Compared, ...]:
        """The compared values that neither its title nor the fact shows."""
        return _leave_out_said(self.result, self.fact)

    @property
    def shape(self) -> str:
        """The shape of its result."""
        return find_shape(self.result)

    @property
    def is_seen(self) -> bool:
        """True if the marked letters of the fact say it, and the result stands before the facts."""
        marked = any(line.marked for line in self.result.compared)
        return self.is_repeated and not self.letter and marked

    @property
    def text(self) -> str:
        """The title of the result, without the words of the claim that stand before it."""
        return _strip_phrase(self.result.title, self.phrase)


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning before the facts; `letter` as in FactNote."""

    result: CheckResult
    letter: str

    @property
    def compared(self) -> tuple[Compared, ...]:
        """The compared values, unless the title shows all of them."""
        return self.result.compared if _leave_out_said(self.result) else ()

    @property
    def shape(self) -> str:
        """The shape of its result."""
        return find_shape(self.result)


@dataclass(frozen=True, slots=True)
class ClaimPiece:
    """A part of the claim; `letter` names the contradiction of its words, or is empty."""

    text: str
    letter: str


@dataclass(frozen=True, slots=True)
class NotedArgument:
    """An argument with the notes beside it."""

    piece: CallArgument
    notes: tuple[FactNote, ...]

    @property
    def is_warned(self) -> bool:
        """True if a warning concerns it."""
        return any(note.result.is_warning for note in self.notes)

    @property
    def rank(self) -> tuple[bool, str]:
        """What arguments are ordered by: first those with warnings, in the order of the claim."""
        letters = [note.letter for note in self.notes if note.letter]
        return not self.is_warned, min(letters, default="~")


@dataclass(frozen=True, slots=True)
class NotedLine:
    """A line of fact 3 with the notes beside it."""

    line: CardLine
    notes: tuple[FactNote, ...]

    @property
    def is_unknown(self) -> bool:
        """True if the agent did not say it, and no check asks for it in particular."""
        return self.line.source == SOURCE_UNKNOWN and not self.notes


@dataclass(frozen=True, slots=True)
class ShownChecks:
    """All results of a request by their places on its page."""

    findings: tuple[Finding, ...]
    listed: tuple[FactNote, ...]  # further warnings: a line above the facts leads to each
    claim: tuple[ClaimPiece, ...]
    first: NotedArgument | None  # the argument that names what runs
    others: tuple[NotedArgument, ...]
    of_arguments: tuple[FactNote, ...]  # that concern the arguments as a whole
    of_changes: tuple[FactNote, ...]
    radius: tuple[NotedLine, ...]  # without what the agent did not say, which is `missing`
    of_undo: tuple[FactNote, ...]
    quiet_results: tuple[CheckResult, ...]  # that concern no fact
    missing: tuple["MissingEvidence", ...]
    marks: tuple[MarkedValue, ...]

    @property
    def asks_worst(self) -> bool:
        """True if a warning before the facts asks to assume the worst."""
        return any(_WORST in finding.result.sentence for finding in self.findings)

    @property
    def is_claim_long(self) -> bool:
        """True if the claim is too long to stand beside the arguments in full."""
        return sum(len(piece.text) for piece in self.claim) > MAX_SIDE_CHARACTERS


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """One item of the line "Not provided"."""

    text: str
    detail: str
    is_warning: bool


def arrange_checks(card: Card, checks: Sequence[CheckResult]) -> ShownChecks:
    """Assign each result its places on the page of the request with this card."""
    letters = _assign_letters(card.claim, checks)
    missing = [result for result in checks if result.check == MISSING_EVIDENCE]
    warned = [
        result
        for result in checks
        if result.is_warning and (result.check != MISSING_EVIDENCE or result.level == "danger")
    ]
    against = [result for result in warned if _phrase_letter(result, letters)]
    above = [
        result
        for result in warned
        if not _phrase_letter(result, letters) or not _is_beside(result, card)
    ]
    if not above and len(against) <= MAX_REPEATED:
        above = against
    if not above and not against:  # an approval despite warnings has one before the facts
        above = [result for result in missing if result.is_warning]
        missing = [result for result in missing if not result.is_warning]
    listed = [result for result in warned if result not in above]
    listed += [result for result in missing if result.is_warning and result not in above]
    anchors = {id(result): f"warning-{number}" for number, result in enumerate(checks, 1)}
    notes: dict[str, list[FactNote]] = {}
    elsewhere = []
    for result in checks:
        place = _find_place(result.concerns, card)
        if result.check == MISSING_EVIDENCE and not place:
            continue
        if not place:
            elsewhere.append(result)
            continue
        note = FactNote(
            result,
            _phrase_letter(result, letters),
            _read_phrase(card.claim, result, letters),
            result in above,
            _read_fact(place, card),
            anchors[id(result)],
        )
        notes.setdefault(place, []).append(note)
    radius = [NotedLine(line, tuple(notes.get(f"radius {line.label}", ()))) for line in card.radius]
    return ShownChecks(
        findings=tuple(Finding(result, _phrase_letter(result, letters)) for result in above),
        listed=tuple(
            FactNote(
                result,
                _phrase_letter(result, letters),
                _read_phrase(card.claim, result, letters),
                False,
                anchor="not-provided" if result in missing else anchors[id(result)],
            )
            for result in sorted(listed, key=_order_listed)
        ),
        claim=tuple(_split_claim(card.claim, letters)),
        first=None
        if card.first is None
        else NotedArgument(card.first, _argument_notes(card.first, notes)),
        others=tuple(
            sorted(
                (NotedArgument(piece, _argument_notes(piece, notes)) for piece in card.others),
                key=lambda noted: noted.rank,
            )
        ),
        of_arguments=tuple(notes.get("arguments", ())),
        of_changes=tuple(notes.get("changes", ())),
        radius=tuple(line for line in radius if not line.is_unknown),
        of_undo=tuple(notes.get("undo", ())),
        quiet_results=tuple(result for result in elsewhere if not result.is_warning),
        missing=(
            *map(_describe_missing, missing),
            *(
                MissingEvidence(line.line.label.lower(), "", False)
                for line in radius
                if line.is_unknown and (line.line.label not in _REF_LABELS or moves_refs(card.tool))
            ),
        ),
        marks=collect_marks(checks),
    )


def collect_marks(checks: Iterable[CheckResult]) -> tuple[MarkedValue, ...]:
    """Return the values whose characters are marked wherever they occur on the page."""
    return tuple(
        dict.fromkeys(
            (result.compared[0].value, result.compared[0].marked)
            for result in checks
            if result.compared and result.compared[0].marked and result.compared[0].value
        )
    )


def find_marked_offsets(text: str, marks: Sequence[MarkedValue]) -> set[int]:
    """Return the offsets of the marked characters of all `marks` in `text`."""
    offsets: set[int] = set()
    for value, marked in marks:
        at = text.find(value)
        while at >= 0:
            offsets.update(at + offset for offset in marked if offset < len(value))
            at = text.find(value, at + len(value))
    return offsets


def find_shape(result: CheckResult) -> str:
    """Return the shape of a result in the sprite."""
    if result.phrase is not None:
        return "unlike"
    usual = "dash" if result.level == "notice" else "warn"
    if result.level == "danger" and result.check == MISSING_EVIDENCE:
        return usual
    return next((shape for word, shape in _SHAPES if word in result.check), usual)


def list_row_flags(checks: Sequence[CheckResult]) -> list[tuple[str, str, str]]:
    """Return the flags of a list row: level, shape and words, the gravest first.

    Several contradictions of the claim are one flag. Beside warnings, milder results are left out.
    """
    warned = any(result.is_warning for result in checks)
    against = [result for result in checks if result.phrase is not None and result.is_warning]
    flags = []
    for result in checks:
        if warned and not result.is_warning:
            continue
        if len(against) > 1 and result in against:
            if result is against[0]:
                flags.append((result.level, "unlike", f"{len(against)} against claim"))
            continue
        flag = (result.level, find_shape(result), result.short)
        if flag not in flags:
            flags.append(flag)
    return flags


def _assign_letters(claim: str, checks: Iterable[CheckResult]) -> dict[tuple[int, int], str]:
    """Return the letter of each contradicted phrase, in the order of the claim."""
    phrases = sorted(
        {
            result.phrase
            for result in checks
            if result.phrase is not None and 0 <= result.phrase[0] < result.phrase[1] <= len(claim)
        }
    )
    return {
        phrase: _LETTERS[at] if at < len(_LETTERS) else str(at + 1)
        for at, phrase in enumerate(phrases)
    }


def _phrase_letter(result: CheckResult, letters: Mapping[tuple[int, int], str]) -> str:
    return letters.get(result.phrase, "") if result.phrase is not None else ""


def _read_phrase(claim: str, result: CheckResult, letters: Mapping[tuple[int, int], str]) -> str:
    if result.phrase is None or result.phrase not in letters:
        return ""
    start, end = result.phrase
    return claim[start:end].strip()


def _split_claim(claim: str, letters: Mapping[tuple[int, int], str]) -> Iterator[ClaimPiece]:
    """Split the claim at its contradicted phrases; a later one that overlaps is cut."""
    reached = 0
    for (begin, end), letter in letters.items():
        start = max(begin, reached)
        if start > reached:
            yield ClaimPiece(claim[reached:start], "")
        yield ClaimPiece(claim[start : max(start, end)], letter)
        reached = max(start, end)
    if reached < len(claim):
        yield ClaimPiece(claim[reached:], "")


def _find_place(concerns: str, card: Card) -> str:
    """Return the key of the fact that a result concerns; empty for the whole request."""
    if concerns in _TARGET_LABELS:
        label = _TARGET_LABELS[concerns]
        return f"radius {label}" if any(line.label == label for line in card.radius) else ""
    head, _, rest = concerns.partition(".")
    if head == "arguments":
        piece = _find_argument(rest, card)
        if piece is None:
            return "arguments"
        return "changes" if piece.shown_above else f"argument {piece.name}"
    return {"changes": "changes", "preconditions": "undo"}.get(head, "")


def _read_fact(place: str, card: Card) -> str:
    """Return the text of the argument at a place; empty for other places."""
    name = place.removeprefix("argument ")
    return next((piece.text for piece in card.pieces if place != name and piece.name == name), "")


def _find_argument(path: str, card: Card) -> CallArgument | None:
    """Return the argument of a dot path; names may hold dots themselves."""
    within = [
        piece
        for piece in card.pieces
        if piece.name and (path == piece.name or path.startswith(f"{piece.name}."))
    ]
    return max(within, key=lambda piece: len(piece.name), default=None)


def _is_beside(result: CheckResult, card: Card) -> bool:
    """True if the note stands on an argument that is in view next to the claim."""
    return not card.long and _find_place(result.concerns, card).startswith("argument")


def _argument_notes(
    piece: CallArgument, notes: Mapping[str, Sequence[FactNote]]
) -> tuple[FactNote, ...]:
    return tuple(notes.get(f"argument {piece.name}", ()))


def _strip_phrase(title: str, phrase: str) -> str:
    """Return a title without the quoted phrase that begins it: `Claim “docs only”: …`."""
    before, quoted, rest = title.partition(f"“{phrase}”")
    if not phrase or not quoted or len(before) > 12 or not rest.startswith((":", ",")):
        return title
    return rest[1:].strip() or title


def _leave_out_said(result: CheckResult, fact: str = "") -> tuple[Compared, ...]:
    """Return the compared values that are not in the texts of the result or in the fact."""
    sentences = f"{result.title} {result.sentence}"
    return tuple(
        line
        for line in result.compared
        if line.marked or not (line.value in sentences or line.value in fact)
    )


def _order_listed(result: CheckResult) -> tuple[bool, tuple[int, int]]:
    """Return the order of listed warnings: in that of the claim, then those it says nothing of."""
    return result.phrase is None, result.phrase or (0, 0)


def _describe_missing(result: CheckResult) -> MissingEvidence:
    text = result.title.removeprefix("Not provided:").strip().rstrip(".:")
    return MissingEvidence(
        text[:1].lower() + text[1:] if text[1:2].islower() else text,
        "" if result.sentence == _WORST else result.sentence,
        result.is_warning,
    )
