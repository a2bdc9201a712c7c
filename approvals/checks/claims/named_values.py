"""Walk the values of arguments with their names. Pure."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

MAX_VALUES: Final = 2_000  # values of one request that are compared
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def iterate_values(
    value: Any, where: str = "arguments", key: str = ""
) -> Iterator[tuple[str, str, Any]]:
    """Yield dot path, nearest name and value of texts, numbers and truth values.

    At most 2,000. An item of a list has the name of its list.
    """
    stack, count = [(where, key, value)], 0
    while stack and count < MAX_VALUES:
        at, name, item = stack.pop()
        if isinstance(item, dict):
            stack += [(f"{at}.{each}", str(each), part) for each, part in item.items()][::-1]
        elif isinstance(item, list):
            stack += [
                (f"{at}.{number}", name, part) for number, part in enumerate(item[:MAX_VALUES])
            ][::-1]
        else:
            count += 1
            yield at, name, item


def iterate_lists(value: Any, where: str = "arguments") -> Iterator[tuple[str, str, list[Any]]]:
    """Yield dot path, name and every list that has a name; nested up to four levels."""
    stack = [(where, value, 0)]
    while stack:
        at, item, depth = stack.pop()
        for each, part in item.items() if isinstance(item, dict) and depth < 4 else ():
            if isinstance(part, list):
                yield f"{at}.{each}", str(each), part
            elif isinstance(part, dict):
                stack.append((f"{at}.{each}", part, depth + 1))


@lru_cache(maxsize=8192)  # names repeat within and between requests
def split_into_words(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words, in camel case, kebab case or snake case."""
    return tuple(word.casefold() for word in _WORD.findall(name))


def build_word_set(text: str) -> frozenset[str]:
    """Build a set of the words of a text, to keep tables of words readable."""
    return frozenset(text.split())
