"""The batch page: requests side by side, what differs, and which are decided apart. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.outliers import (
    STANDS_OUT,
    Difference,
    RequestSet,
    SetColumn,
    compare_set,
)
from approvals.policies.engine import is_production_name

MAX_COLUMNS: Final = 6  # that fit beside the vote panel; all arguments are below the table
_CODE_CHARACTERS: Final = 32  # of names that are set as code
_COMPUTED: Final = ("target.ref_class", "request.reversibility")  # not claimed by the agent
_IN_HEADER: Final = ("request.reversibility",)


@dataclass(frozen=True, slots=True)
class BatchCell:
    """A value in the table; `text` is None if it was not provided.

    `notes` are what the others have; `letters` lead to phrases of the claim that it contradicts.
    """

    name: str
    text: str | None
    is_name: bool = False
    is_common: bool = False
    is_number: bool = False
    notes: tuple[tuple[str, str], ...] = ()  # (ours, agent text): ("others:", "staging-eu-2")
    letters: tuple[str, ...] = ()
    level: str = ""
    is_production: bool = False


@dataclass(frozen=True, slots=True)
class BatchColumn:
    """The head of a column."""

    name: str
    is_number: bool
    is_claimed: bool


@dataclass(slots=True)
class BatchRow:
    """One request. `why` are the reasons to decide it alone; empty if it may be ticked.

    `beside` are those of the reasons that no cell shows.
    """

    gate: Any
    card: Any
    why: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    stands_out: bool = False
    cells: tuple[BatchCell, ...] = ()
    token: str = ""
    stop: Any = None
    ticked: bool = False
    number: int = 0  # among those that may be ticked, from 1


@dataclass(frozen=True, slots=True)
class ClaimPart:
    """A part of the claim; `letter` is set if a check contradicts it."""

    text: str
    letter: str = ""


@dataclass(slots=True)
class BatchTable:
    """All that the page shows of the requests."""

    alike: list[BatchRow] = field(default_factory=list)
    apart: list[BatchRow] = field(default_factory=list)
    same: tuple[tuple[str, str, bool], ...] = ()  # name, value, claimed by the agent
    columns: tuple[BatchColumn, ...] = ()
    unlisted: tuple[str, ...] = ()  # names of columns that did not fit
    differ_by: tuple[str, ...] = ()  # names of columns in which those alike differ
    claim: tuple[ClaimPart, ...] | None = None  # None if the claims differ

    @property
    def rows(self) -> list[BatchRow]:
        """All rows, in the order of the page."""
        return [*self.apart, *self.alike]

    @property
    def ticked(self) -> int:
        """How many are ticked."""
        return sum(row.ticked for row in self.alike)

    @property
    def outliers(self) -> int:
        """How many stand out."""
        return sum(row.stands_out for row in self.apart)

    @property
    def has_contradictions(self) -> bool:
        """True if a check contradicts the claim."""
        return any(cell.letters for row in self.rows for cell in row.cells)

    @property
    def in_production(self) -> int:
        """How many stand out because they are in production."""
        return sum(any(cell.is_production for cell in row.cells) for row in self.apart)


def build_batch_table(
    rows: Sequence[BatchRow],
    requests: Sequence[CheckedRequest],
    results: Mapping[UUID, Sequence[CheckResult]],
    bound: frozenset[str] | None,
) -> BatchTable:
    """Compare the requests; those with reasons in `why`, or that stand out, are apart.

    `bound` are the names of arguments that the intent covers, None for none: others count as
    claimed by the agent.
    """
    compared = compare_set(requests)
    table = BatchTable()
    claims = {request.claim for request in requests}
    shared = claims.pop() if len(claims) == 1 else None
    letters = _assign_letters(shared or "", results)
    if shared is not None:
        table.claim = _split_claim(shared, letters)
    columns = _order_columns(compared)
    listed = columns[:MAX_COLUMNS] if shared is not None else columns[: MAX_COLUMNS - 1]
    table.unlisted = tuple(column.name for column in columns[len(listed) :])
    if shared is None:
        listed = [*listed, _claim_column(requests)]
    table.columns = tuple(
        BatchColumn(column.name, column.is_number, _is_claimed(column.path, bound))
        for column in listed
    )
    table.same = tuple(
        (column.name, column.texts[0] or "", _is_claimed(column.path, bound))
        for column in compared.same
        if column.path not in _IN_HEADER
    )
    for number, row in enumerate(rows):
        _fill_row(row, number, listed, compared, results.get(row.gate.id, ()), letters)
        (table.apart if row.why else table.alike).append(row)
    for number, row in enumerate(table.alike, 1):
        row.number = number
    alike = [number for number, row in enumerate(rows) if not row.why]
    table.differ_by = tuple(
        column.name
        for column in compared.columns
        if len({column.texts[number] for number in alike}) > 1
    )
    return table


def _order_columns(compared: RequestSet) -> list[SetColumn]:
    """Put the name of the thing first, then what stands out, then the rest as sent."""
    names = [column for column in compared.columns if column.is_distinct and not column.outlying]
    name = min(names, key=lambda column: max(map(len, filter(None, column.texts))), default=None)
    return sorted(compared.columns, key=lambda column: (column is not name, not column.outlying))


def _claim_column(requests: Sequence[CheckedRequest]) -> SetColumn:
    texts = tuple(request.claim or None for request in requests)
    return SetColumn("claim", "claim", texts, None, is_number=False, outlying={})


def _is_claimed(path: str, bound: frozenset[str] | None) -> bool:
    root, _, rest = path.partition(".")
    if root == "arguments":
        return bound is None or (bool(rest) and rest.partition(".")[0] not in bound)
    return path not in _COMPUTED


def _fill_row(
    row: BatchRow,
    number: int,
    columns: Sequence[SetColumn],
    compared: RequestSet,
    results: Sequence[CheckResult],
    letters: Mapping[tuple[int, int], str],
) -> None:
    """Set the cells of a row, and the reasons that no cell shows."""
    differences = compared.outliers.get(row.gate.id, ())
    paths = {column.path for column in columns}
    warned = [result for result in results if result.is_warning]
    row.stands_out = bool(differences) or any(result.check == STANDS_OUT for result in warned)
    row.cells = tuple(
        _build_cell(column, number, warned, letters, is_name=not place and column.is_distinct)
        for place, column in enumerate(columns)
    )
    texts = {result.short: any(_is_about(result, path) for path in paths) for result in warned}
    for difference in differences:
        texts[f"stands out: {difference.name}"] = difference.path in paths
    row.beside = (*row.why, *(text for text, is_in_cell in texts.items() if not is_in_cell))
    row.why = (*row.why, *texts)


def _is_about(result: CheckResult, path: str) -> bool:
    """Return True if a result concerns the value at `path`, or an entry of the list there."""
    return result.concerns == path or result.concerns.startswith(f"{path}.")


def _build_cell(
    column: SetColumn,
    number: int,
    results: Sequence[CheckResult],
    letters: Mapping[tuple[int, int], str],
    *,
    is_name: bool,
) -> BatchCell:
    differences: Sequence[Difference] = column.outlying.get(number, ())
    concerned = [result for result in results if _is_about(result, column.path)]
    notes = [("others:", difference.others) for difference in differences]
    for result in concerned:
        if result.check != STANDS_OUT:
            notes.append(("", result.short))
        elif not differences:
            notes.append(("", result.sentence))
    levels = [each.level for each in differences] + [result.level for result in concerned]
    text = column.texts[number]
    return BatchCell(
        name=column.name,
        text=text,
        is_name=is_name and len(text or "") <= _CODE_CHARACTERS,
        is_common=text is not None and text == column.common and not levels,
        is_number=column.is_number,
        notes=tuple(notes),
        letters=tuple(
            dict.fromkeys(
                letters[result.phrase]
                for result in concerned
                if result.phrase is not None and result.phrase in letters
            )
        ),
        level="danger" if "danger" in levels else "warning" if levels else "",
        is_production="danger" in levels and text is not None and is_production_name(text),
    )


def _assign_letters(
    claim: str, results: Mapping[UUID, Sequence[CheckResult]]
) -> dict[tuple[int, int], str]:
    """Name the contradicted phrases of a claim by letters, in its order; at most 26."""
    phrases = sorted(
        {
            result.phrase
            for listed in results.values()
            for result in listed
            if result.phrase is not None and 0 <= result.phrase[0] < result.phrase[1] <= len(claim)
        }
    )
    return dict(zip(phrases, "abcdefghijklmnopqrstuvwxyz", strict=False))


def _split_claim(claim: str, letters: Mapping[tuple[int, int], str]) -> tuple[ClaimPart, ...]:
    parts, at = [], 0
    for (start, end), letter in letters.items():
        if start < at:
            continue  # overlaps the phrase before
        if start > at:
            parts.append(ClaimPart(claim[at:start]))
        parts.append(ClaimPart(claim[start:end], letter))
        at = end
    if at < len(claim):
        parts.append(ClaimPart(claim[at:]))
    return tuple(parts)
