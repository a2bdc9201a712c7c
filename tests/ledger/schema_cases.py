"""How a case of the law in the schema is written down: what breaks one constraint, and what keeps
it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import models

from approvals.models import Gate
from tests.ledger.rows_by_hand import Row, World


@dataclass(frozen=True)
class Case:
    """`wrong` columns in a lawful row break the constraint, `right` ones keep it; `first` is a row
    there before."""

    model: type[models.Model]
    wrong: Callable[[World], Row]
    right: Callable[[World], Row] = field(default=lambda _world: {})
    first: Callable[[World], Row] | None = None
    steps: list[Row] | None = None  # where the row is written first, and the rest are updates of it
    also: Callable[[World], list[Row]] = field(
        default=lambda _world: []
    )  # other columns that break it as well


def same(
    model: type[models.Model], columns: Callable[[World], Row], right: Callable[[World], Row]
) -> Case:
    """Two rows alike in `columns` break uniqueness; a second one with `right` beside it does not."""
    return Case(model, wrong=columns, right=lambda w: {**columns(w), **right(w)}, first=columns)


def check(model: type[models.Model], wrong: Row, right: Row | None = None, *also: Row) -> Case:
    return Case(
        model,
        wrong=lambda _world: wrong,
        right=lambda _world: right or {},
        also=lambda _world: list(also),
    )


def moved(steps: list[Row], wrong: Row, right: Row) -> Case:
    """A gate that opened, took `steps`, and then takes `wrong` or `right`: a gate starts pending, so
    by UPDATE."""
    return Case(Gate, wrong=lambda _: wrong, right=lambda _: right, steps=steps)
