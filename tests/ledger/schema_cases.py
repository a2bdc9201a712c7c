"""How a test case of one constraint is written: rows that violate it and rows that satisfy it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import models

from approvals.models import Gate
from tests.ledger.rows_by_hand import Row, World


@dataclass(frozen=True)
class Case:
    """`wrong` columns in a valid row violate the constraint, `right` columns satisfy it; `first` is
    an earlier row."""

    model: type[models.Model]
    wrong: Callable[[World], Row]
    right: Callable[[World], Row] = field(default=lambda _world: {})
    first: Callable[[World], Row] | None = None
    steps: list[Row] | None = None  # updates of the row after its INSERT
    also: Callable[[World], list[Row]] = field(
        default=lambda _world: []
    )  # other columns that violate it too


def unique_case(
    model: type[models.Model], columns: Callable[[World], Row], right: Callable[[World], Row]
) -> Case:
    """Two rows with the same `columns` violate uniqueness; a second row with `right` does not."""
    return Case(model, wrong=columns, right=lambda w: {**columns(w), **right(w)}, first=columns)


def check_case(model: type[models.Model], wrong: Row, right: Row | None = None, *also: Row) -> Case:
    return Case(
        model,
        wrong=lambda _world: wrong,
        right=lambda _world: right or {},
        also=lambda _world: list(also),
    )


def gate_case(steps: list[Row], wrong: Row, right: Row) -> Case:
    """A gate that opens, takes `steps`, and then takes `wrong` or `right`: a gate starts pending, so
    by UPDATE."""
    return Case(Gate, wrong=lambda _: wrong, right=lambda _: right, steps=steps)
