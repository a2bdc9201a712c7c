"""Values of attributes as JSON, and how many a span may have."""

import base64
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import TypeVar

from traces.spans import MAX_ATTRIBUTES, MAX_VALUES, SpanFault

T = TypeVar("T")


class ValueBudget:
    """Counts the attributes and values of one span, and refuses more than the limits."""

    __slots__ = ("attributes", "values")

    def __init__(self) -> None:
        self.attributes = MAX_ATTRIBUTES
        self.values = MAX_VALUES

    def count_attribute(self) -> None:
        """Count one attribute. Raises SpanFault beyond the limit."""
        self.attributes -= 1
        if self.attributes < 0:
            raise SpanFault(f"The span has more than {MAX_ATTRIBUTES} attributes. Send fewer.")

    def limit(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values and count them. Raises SpanFault beyond the limit."""
        for value in values:
            self.values -= 1
            if self.values < 0:
                raise SpanFault(f"The attributes have more than {MAX_VALUES} values. Send fewer.")
            yield value


def to_json_number(number: float) -> float | str:
    """Return a float, or its name where JSON has none: `NaN`, `Infinity`, `-Infinity`."""
    if isfinite(number):
        return number
    if number != number:
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def encode_bytes(data: bytes) -> str:
    """Return bytes as JSON encodes them: base64."""
    return base64.b64encode(data).decode()
