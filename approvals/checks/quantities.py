"""Read numbers with units and sums of money out of arguments. Pure; imports no Django."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from approvals.checks.argument_names import split_name

MAX_NUMBER: Final = 1e100  # larger numbers are no quantities
_MAX_CHARACTERS: Final = 48  # longer texts are no quantities
_POWERS: Final = dict(zip("kmgtp", range(1, 6), strict=True))
_BYTES: Final = {
    **dict.fromkeys(("byte", "bytes"), 1.0),
    **{f"{letter}b": 1000.0**power for letter, power in _POWERS.items()},
    **{f"{letter}ib": 1024.0**power for letter, power in _POWERS.items()},
    **{f"{letter}i": 1024.0**power for letter, power in _POWERS.items()},
}
# Units whose case counts: m is a metre, a minute or a thousandth.
_CASED_BYTES: Final = {"B": 1.0, **{x.upper(): 1000.0**power for x, power in _POWERS.items()}}
_SECONDS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400.0),
    **dict.fromkeys(("month", "months"), 30 * 86_400.0),
    **dict.fromkeys(("y", "yr", "year", "years"), 365 * 86_400.0),
}
_SIGNS: Final = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR"}
_CURRENCIES: Final = re.compile(
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|SEK|SGD|TRY|USD|ZAR"
)
_BLANKS: Final = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f"), " ")  # of typography
_QUANTITY: Final = re.compile(
    r"(?P<sign>[$€£¥₹])?\s?(?P<minus>[-−])?"
    r"(?P<number>\d{1,3}(?:[ ,'’._]\d{3})+(?:[.,]\d+)?|\d{1,15}(?:[.,]\d+)?)"
    r"(?P<gap>\s?)(?P<unit>[A-Za-z]{1,12}|[%$€£¥₹])?(?P<ago> (?:ago|old))?"
)
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.{0,20})?")


_MONEY_WORDS: Final = split_name(
    "amount balance charge cost credit discount fee payment payout price refund salary subtotal "
    "sum tax total value"
)
# A number whose name ends with one of these means nothing without a unit.
_AMOUNT_WORDS: Final = split_name("amount fee payment payout price refund salary")
_UNIT_WORDS: Final = split_name("currency unit units")
NO_UNIT: Final = "no unit sent"
_COUNTED_WORDS: Final = _MONEY_WORDS | split_name("limit quantity qty size")
_SUFFIXES: Final = {
    **dict.fromkeys(("cent", "cents"), "cents"),
    **dict.fromkeys(("minor", "pence", "percent"), ""),
}
_UNIT_TEXT: Final = re.compile(r"[A-Za-z%€$£¥₹µ°/]{1,12}")


class Quantity(NamedTuple):
    """A number with its dimension: "" for a bare one, "bytes", "seconds", "money EUR", "rows".

    `number` is in bytes, seconds, or the unit that is its dimension. `unit` is the text after the
    digits. `is_age` is true for a time before now: "61 days ago", a date.
    """

    number: float
    dimension: str
    unit: str = ""
    is_age: bool = False


def parse_quantity(value: Any, now_us: int = 0) -> Quantity | None:
    """Parse 20, "20 GiB", "2,048", "$1 200.50", "61 days ago", "30 %"; else None.

    A moment is its age in seconds before `now_us`; 0 reads none. Digits with a leading zero are an
    id, and so is text in which letters follow the digits without being a unit.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return Quantity(float(value), "") if abs(value) < MAX_NUMBER else None
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_CHARACTERS:
        return None
    text = value.translate(_BLANKS).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return _parse_age(text, now_us) if now_us else None
    digits, unit = match["number"], match["unit"] or ""
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return None
    number = _parse_number(digits)
    if number is None:
        return None
    number = -number if match["minus"] else number
    lowered, is_age = unit.lower(), match["ago"] is not None
    currency = _SIGNS.get(match["sign"] or unit) or (unit.upper() if match["sign"] else "")
    if match["sign"] or unit in _SIGNS or _CURRENCIES.fullmatch(unit.upper()):
        return Quantity(number, f"money {currency or unit.upper()}", unit)
    size = _CASED_BYTES.get(unit) or _BYTES.get(lowered)
    if size is not None:
        return Quantity(number * size, "bytes", unit)
    if lowered in _SECONDS:
        return Quantity(number * _SECONDS[lowered], "seconds", unit + (match["ago"] or ""), is_age)
    if not unit:
        return Quantity(number, "")
    if unit == "%":
        return Quantity(number, "%", unit)
    return Quantity(number, lowered.removesuffix("s"), unit) if match["gap"] else None


def find_unit(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what the arguments say the number of argument `name` counts; empty if they do not.

    NO_UNIT for an amount of money if neither its name nor another argument names a unit: 2300 may
    be cents.

    `currency` and `unit` are repeated with their names, because `amount: 2300` with `currency:
    EUR` may be 23 euros: "currency EUR", "cents", "cents, currency EUR".
    """
    quantity = parse_quantity(arguments.get(name))
    if quantity is None or quantity.dimension:
        return ""
    words = _split_words(name)
    last = words[-1] if len(words) > 1 else ""
    parts = [_SUFFIXES[last] or last] if last in _SUFFIXES else []
    if _CURRENCIES.fullmatch(last.upper()):
        return last.upper()
    is_money = bool(_MONEY_WORDS.intersection(words)) or last in ("cent", "cents", "pence")
    is_counted = bool(_COUNTED_WORDS.intersection(words))
    for key, is_meant in (
        (f"{name}_currency", True),
        (f"{name}_unit", True),
        ("currency", is_money),
        ("currency_code", is_money),
        ("unit", is_counted and not is_money),
        ("units", is_counted and not is_money),
    ):
        text = arguments.get(key)
        if is_meant and key != name and isinstance(text, str) and _UNIT_TEXT.fullmatch(text):
            parts.append(f"{key.removeprefix(f'{name}_')} {text}")
            break
    if not parts and words and words[-1] in _AMOUNT_WORDS:
        is_named = any(_CURRENCIES.fullmatch(word.upper()) for word in words)
        is_sent = any(_UNIT_WORDS.intersection(_split_words(key)) for key in arguments)
        return "" if is_named or is_sent else NO_UNIT
    return ", ".join(parts)


def _split_words(name: str) -> list[str]:
    """Return the words of a name in lower case: totalAmount, total_amount -> total, amount."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _parse_number(digits: str) -> float | None:
    """Parse digits with separators: 2,048 is a whole number, 2,04 and 1.234,56 are not."""
    plain = re.sub(r"[ '’_]", "", digits)
    points, commas = plain.count("."), plain.count(",")
    if points and commas:
        decimal = "." if plain.rfind(".") > plain.rfind(",") else ","
        plain = plain.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    elif commas:
        thousands = commas > 1 or len(plain.rpartition(",")[2]) == 3
        plain = plain.replace(",", "" if thousands else ".")
    elif points > 1:
        plain = plain.replace(".", "")
    try:
        return float(plain)
    except ValueError:
        return None


def _parse_age(text: str, now_us: int) -> Quantity | None:
    if not _MOMENT.fullmatch(text):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    age_s = now_us / 1_000_000 - at.timestamp()
    return Quantity(age_s, "seconds", is_age=True) if age_s > 0 else None
