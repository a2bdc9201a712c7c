"""Compare two fields of one row: `ref:@environment`, `used:>@expires`."""

from collections.abc import Callable
from typing import Any, Final

from django.db.models import Exists, F, OuterRef, Q, Subquery
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)

from investigation.query.fields.row_tests import CompileContext, RowTest
from investigation.query.fields.types import Field, MultiValue, Ordered
from investigation.query.parser.ast import QueryError, QueryValue, Term

_COMPARE: Final = {
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
    "": Exact,
}
_PLAIN: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "": lambda a, b: a == b,
}


def find_compared_field(term: Term) -> QueryValue | None:
    """Return the value that names another field, as in `left:@right`. Raises QueryError."""
    compared = next((value for value in term.values if value.form == "field"), None)
    if compared is not None and len(term.values) > 1:
        raise QueryError(
            compared.at,
            len(compared.text) + 1,
            "A field can be compared with one other field only.",
        )
    return compared


def compile_field_comparison(
    left: Field,
    right: Field,
    operator: str,
    context: CompileContext,
    *,
    differs: bool,
    at: int,
    end: int,
) -> RowTest:
    """Compile `left:@right`. Rows where either value is unknown never match, negated or not.

    A field with several values matches if any of them does. Raises QueryError.
    """
    sign = "" if operator == "=" else operator
    if differs and sign:
        raise QueryError(
            at, end - at, "“!@” cannot be combined with another operator. Use it alone."
        )
    if sign and not (
        isinstance(left, Ordered | MultiValue) and isinstance(right, Ordered | MultiValue)
    ):
        raise QueryError(
            at,
            end - at,
            f"{left.name} and {right.name} have no order. Use {left.name}:@{right.name}.",
        )
    if left.kind != right.kind and {left.kind, right.kind} != {"text", "choice"}:
        raise QueryError(
            at,
            end - at,
            f"{left.name} is {left.takes()} but {right.name} is {right.takes()}. They cannot be "
            "equal.",
        )
    if isinstance(left, MultiValue) and isinstance(right, MultiValue):
        raise QueryError(
            at,
            end - at,
            f"{left.name} and {right.name} both have several values. Compare one with another "
            "field.",
        )
    if isinstance(left, MultiValue) or isinstance(right, MultiValue):
        several, single = (left, right) if isinstance(left, MultiValue) else (right, left)
        turned = (
            sign
            if several is left
            else {">": "<", "<": ">", ">=": "<=", "<=": ">="}.get(sign, sign)
        )
        return _compare_several(several, single, turned, context, differs=differs, at=at, end=end)  # type: ignore[arg-type]
    left_value, right_value = left.compared(), right.compared()
    if left_value is None or right_value is None:
        raise QueryError(
            at,
            end - at,
            f"{(left if left_value is None else right).name} cannot be compared with another "
            "field.",
        )
    both_known = left.present().q & right.present().q
    same = Q(_COMPARE[sign](left_value, right_value))
    compare_values = _PLAIN[sign]

    def holds(row: Any) -> bool:
        a, b = left.plain(row), right.plain(row)
        if a in ("", None) or b in ("", None):
            return False
        return compare_values(a, b) != differs

    return RowTest(both_known & (~same if differs else same), holds)


def _compare_several(
    several: MultiValue,
    single: Field,
    sign: str,
    context: CompileContext,
    *,
    differs: bool,
    at: int,
    end: int,
) -> RowTest:
    assert several.rows is not None and several.inner is not None  # noqa: S101, PT018
    inner = several.inner.compared()
    if inner is None or single.compared() is None or (isinstance(single, Ordered) and single.minus):
        raise QueryError(at, end - at, f"{several.name} and {single.name} cannot be compared.")
    rows = several.rows(context.project).filter(several.inner.present().q)
    # No index leads from the entity's row to these rows, so each of them looks up the value.
    if several.of is not None:
        parents = several.of._default_manager.filter(
            pk=OuterRef(several.link), project=context.project
        )
        rows = rows.annotate(single_of_it=Subquery(parents.values(single.path)[:1]))
        same = Q(_COMPARE[sign](inner, F("single_of_it")))
        rows = rows.filter(~same if differs else same)
        return RowTest(
            single.present().q & Q(**{f"{several.to}__in": rows.order_by().values(several.link)})
        )
    rows = rows.filter(**{several.link: OuterRef(several.to)})
    same = Q(_COMPARE[sign](inner, OuterRef(single.path)))
    rows = rows.filter(~same if differs else same)
    return RowTest(single.present().q & Q(Exists(rows)))
