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

from inquiry.query.fields import Context, Field, Test
from inquiry.query.kinds import Ordered, Several
from inquiry.query.tree import Fault

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


def compare(
    left: Field, right: Field, operator: str, context: Context, *, differs: bool, at: int, end: int
) -> Test:
    """Compile `left:@right`. Rows where either value is unknown never match, negated or not.

    A field with several values matches if any of them does. Raises Fault.
    """
    sign = "" if operator == "=" else operator
    if differs and sign:
        raise Fault(at, end - at, "“!@” cannot be combined with another operator. Use it alone.")
    if sign and not (isinstance(left, Ordered | Several) and isinstance(right, Ordered | Several)):
        raise Fault(
            at,
            end - at,
            f"{left.name} and {right.name} have no order. Use {left.name}:@{right.name}.",
        )
    if left.kind != right.kind and {left.kind, right.kind} != {"text", "choice"}:
        raise Fault(
            at,
            end - at,
            f"{left.name} is {left.takes()} but {right.name} is {right.takes()}. They cannot be "
            "equal.",
        )
    if isinstance(left, Several) and isinstance(right, Several):
        raise Fault(
            at,
            end - at,
            f"{left.name} and {right.name} both have several values. Compare one with another "
            "field.",
        )
    if isinstance(left, Several) or isinstance(right, Several):
        several, single = (left, right) if isinstance(left, Several) else (right, left)
        turned = (
            sign
            if several is left
            else {">": "<", "<": ">", ">=": "<=", "<=": ">="}.get(sign, sign)
        )
        return _several(several, single, turned, context, differs=differs, at=at, end=end)  # type: ignore[arg-type]
    left_value, right_value = left.compared(), right.compared()
    if left_value is None or right_value is None:
        raise Fault(
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

    return Test(both_known & (~same if differs else same), holds)


def _several(
    several: Several,
    single: Field,
    sign: str,
    context: Context,
    *,
    differs: bool,
    at: int,
    end: int,
) -> Test:
    assert several.rows is not None and several.inner is not None  # noqa: S101, PT018
    inner = several.inner.compared()
    if inner is None or single.compared() is None or (isinstance(single, Ordered) and single.minus):
        raise Fault(at, end - at, f"{several.name} and {single.name} cannot be compared.")
    rows = several.rows(context.project).filter(several.inner.present().q)
    # No index leads from the entity's row to these rows, so each of them looks up the value.
    if several.of is not None:
        parents = several.of._default_manager.filter(
            pk=OuterRef(several.link), project=context.project
        )
        rows = rows.annotate(single_of_it=Subquery(parents.values(single.path)[:1]))
        same = Q(_COMPARE[sign](inner, F("single_of_it")))
        rows = rows.filter(~same if differs else same)
        return Test(
            single.present().q & Q(**{f"{several.to}__in": rows.order_by().values(several.link)})
        )
    rows = rows.filter(**{several.link: OuterRef(several.to)})
    same = Q(_COMPARE[sign](inner, OuterRef(single.path)))
    rows = rows.filter(~same if differs else same)
    return Test(single.present().q & Q(Exists(rows)))
