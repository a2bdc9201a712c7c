"""Usage lines: how a command line is written, and what its words are called. Pure.

`git push REMOTE REFS... -f|--force --repo=REMOTE -d!|--delete!`

- Lower-case words are the program and its subcommands; `a|b` are alternatives.
- CAPITALS are positions, in their order; `NAME...` takes all that follow, `_` is not kept.
- An option takes a value with `=NAME`, may take an attached one with `=?NAME`, and repeats with
  `...` after it. Without a name of its own an argument is called like the longest spelling;
  `:name` calls a switch otherwise, `:_` does not keep it.
- `!` after an option: the line applies only if one of the options with `!` is there.
- `--` at the end: what follows the first position is never read as options.

Options may stand anywhere, in one word (`-fu`), attached (`-nprod`, `--repo=x`) or shortened
(`--forc`), as programs take them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shell.words import Word, describe_unknown, is_unknown_value, show_word, show_words

MAX_USAGE_CHARACTERS: Final = 4_000
MAX_USAGE_ITEMS: Final = 250
_LITERAL: Final = re.compile(r"[A-Za-z0-9_.@:+/[*-]*[a-z0-9_.@:+/[*-][A-Za-z0-9_.@:+/[*-]*")
_POSITION: Final = re.compile(r"(_|[A-Z][A-Z0-9_]{0,38})(\.\.\.)?")
_OPTION: Final = re.compile(
    r"(?P<spellings>-[^=|!:\s]+!?(?:\|-[^=|!:\s]+!?)*)"
    r"(?:(?P<sign>=\??)(?P<value>_|[A-Z][A-Z0-9_]{0,38})(?P<many>\.\.\.)?|:(?P<name>[a-z_][a-z0-9_]{0,38}))?"
)
_RESERVED: Final = frozenset({"command", "parts", "tools", "compound", "others", "options"})


class UsageError(ValueError):
    """A usage line cannot be read; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a usage line. `takes`: "" nothing, "value", or "attached" only with `=`."""

    name: str  # of the argument; "" is not kept
    takes: str = ""
    many: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """A usage line that was read."""

    line: str
    programs: tuple[str, ...]
    literals: tuple[frozenset[str], ...]
    positions: tuple[str, ...]
    rest: str | None  # name of the list of remaining positions; None without one
    options: Mapping[str, Option]
    ends_options: bool = False
    options_before: Mapping[str, Option] | None = None  # those before the first word, if others

    @property
    def needs_option(self) -> bool:
        """True if it applies only with one of its options."""
        return any(option.required for option in self.options.values())


@dataclass(slots=True)
class ReadWords:
    """The words of one command by their part in a usage line."""

    positionals: list[Word] = field(default_factory=list)
    values: dict[str, list[Word]] = field(default_factory=dict)  # argument -> words; [] of a switch
    spellings: dict[str, str] = field(default_factory=dict)  # argument -> the option as written
    negated: set[str] = field(default_factory=set)  # arguments of --no-…
    unlisted: list[str] = field(default_factory=list)  # options that the line does not have
    hidden: list[str] = field(default_factory=list)  # texts of words that can become options


def parse_usage(line: str) -> Usage:
    """Return the usage of a line that begins with a program. Raises UsageError."""
    if len(line) > MAX_USAGE_CHARACTERS:
        raise UsageError(f"is longer than {MAX_USAGE_CHARACTERS} characters.")
    items = line.split()
    if not items or len(items) > MAX_USAGE_ITEMS:
        raise UsageError(f"must have 1 to {MAX_USAGE_ITEMS} words.")
    programs = tuple(items[0].split("|"))
    for program in programs:
        if not _LITERAL.fullmatch(program) or program.startswith("-") or "/" in program:
            raise UsageError(f"must begin with the name of a program, not with {program!r}.")
    literals: list[frozenset[str]] = []
    positions: list[str] = []
    rest: str | None = None
    options: dict[str, Option] = {}
    ends_options = False
    for item in items[1:]:
        position = _POSITION.fullmatch(item)
        if item == "--":
            ends_options = True
        elif item.startswith("-"):
            options.update(_parse_option(item))
        elif position:
            if rest is not None:
                raise UsageError(f"has {item!r} after a position that takes all others.")
            name = _name_argument(position[1])
            if position[2]:
                rest = name
            else:
                positions.append(name)
        elif all(_LITERAL.fullmatch(word) for word in item.split("|")):
            if positions or rest is not None:
                raise UsageError(f"has the word {item!r} after a position.")
            literals.append(frozenset(item.split("|")))
        else:
            raise UsageError(f"has {item!r}, which is neither a word, a NAME nor an option.")
    return Usage(line, programs, tuple(literals), tuple(positions), rest, options, ends_options)


def parse_options(text: str) -> dict[str, Option]:
    """Return the options of a text that has nothing else. Raises UsageError."""
    options: dict[str, Option] = {}
    for item in text.split():
        if not item.startswith("-"):
            raise UsageError(f"has {item!r}, which is no option.")
        options.update(_parse_option(item))
    return options


def _parse_option(item: str) -> Iterator[tuple[str, Option]]:
    match = _OPTION.fullmatch(item)
    if match is None:
        raise UsageError(
            f"has the option {item!r}; write -f|--force, --repo=NAME or --set=NAMES..."
        )
    spellings = match["spellings"].split("|")
    longest = max(spellings, key=len).rstrip("!").lstrip("-")
    if match["value"]:
        name = _name_argument(match["value"])
        takes = "attached" if match["sign"] == "=?" else "value"
    else:
        name = match["name"] or re.sub(r"[^a-z0-9]+", "_", longest.lower()).strip("_")
        name, takes = ("" if name == "_" else name), ""
    if name in _RESERVED:
        raise UsageError(f"calls an argument {name!r}, which every command has; choose another.")
    for spelling in spellings:
        yield spelling.rstrip("!"), Option(name, takes, bool(match["many"]), spelling[-1] == "!")


def _name_argument(name: str) -> str:
    if name.lower() in _RESERVED:
        raise UsageError(f"calls an argument {name!r}, which every command has; choose another.")
    return "" if name == "_" else name.lower()


def read_words(
    words: Sequence[Word],
    options: Mapping[str, Option],
    *,
    ends_options: int | None = None,
    options_before: Mapping[str, Option] | None = None,
) -> ReadWords:
    """Sort the words after a program by `options`.

    With `ends_options`, what follows that many positionals is never an option. `options_before` are
    those before the first positional, where they are others.
    """
    result = ReadWords()
    at, only_positions = 0, False
    later, options = options, options if options_before is None else options_before
    while at < len(words):
        word = words[at]
        at += 1
        if result.positionals:
            options = later
        if ends_options is not None and len(result.positionals) == ends_options:
            if not only_positions and word.value == "--":
                only_positions = True
                continue
            only_positions = True
        if only_positions:
            result.positionals.append(word)
            continue
        text = word.value if word.value is not None else word.prefix
        if word.value is None and word.may_be_option:
            name, _ = _split_attached(text, options) if "=" in text else ("", None)
            if name:  # --context="$x": an option that is known with a value that is not
                _add_value(result, options[name], name, Word(None, word.text, splits=word.splits))
            else:
                result.hidden.append(word.text)
                result.positionals.append(word)
        elif text == "--":
            only_positions = True
        elif text in options or (text.startswith("--") and len(text) > 2):
            at = _read_long(result, text, word, words, at, options)
        elif text.startswith("-") and len(text) > 1:
            at = _read_short(result, text, word, words, at, options)
        else:
            result.positionals.append(word)
    return result


def _split_attached(text: str, options: Mapping[str, Option]) -> tuple[str, str | None]:
    """Return the option of `--name=value`, also shortened, and its value."""
    name, sign, value = text.partition("=")
    if name in options:
        return name, value if sign else None
    if name.startswith("--") and len(name) > 3:
        full = [spelling for spelling in options if spelling.startswith(name)]
        if full:
            return min(full, key=len), value if sign else None
    return "", value if sign else None


def _read_long(
    result: ReadWords,
    text: str,
    word: Word,
    words: Sequence[Word],
    at: int,
    options: Mapping[str, Option],
) -> int:
    name, attached = _split_attached(text, options)
    if not name:
        if text.startswith("--no-"):  # it may be shortened
            named = "--" + text.removeprefix("--no-")
            result.negated.update(
                option.name for spelling, option in options.items() if spelling.startswith(named)
            )
        result.unlisted.append(text)
        return at
    option = options[name]
    if attached is not None:
        if option.takes:
            _add_value(result, option, name, Word(attached, attached))
        elif attached.lower() not in ("false", "0", "no"):
            _add_switch(result, option, name)
        else:
            result.negated.add(option.name)
        return at
    if option.takes == "value":
        if at < len(words):
            _add_next_word(result, option, name, words[at])
        return at + 1
    _add_switch(result, option, name)
    return at


def _read_short(
    result: ReadWords,
    text: str,
    word: Word,
    words: Sequence[Word],
    at: int,
    options: Mapping[str, Option],
) -> int:
    """Read -f, -fu, -nprod; also -chdir=x, which some programs write with a single dash."""
    name, sign, attached = text.partition("=")
    if sign and name in options and len(name) > 2:
        _add_value(result, options[name], name, Word(attached, attached))
        return at
    for index in range(1, len(text)):
        spelling = "-" + text[index]
        option = options.get(spelling)
        if option is None:
            result.unlisted.append(text if index == 1 else spelling)
            if index == 1:
                return at
            continue
        if not option.takes:
            _add_switch(result, option, spelling)
            continue
        rest = text[index + 1 :].removeprefix("=")
        if rest:
            _add_value(result, option, spelling, Word(rest, rest))
        elif option.takes == "value":
            if at < len(words):
                _add_next_word(result, option, spelling, words[at])
            return at + 1
        else:
            _add_switch(result, option, spelling)
        return at
    return at


def _add_next_word(result: ReadWords, option: Option, spelling: str, word: Word) -> None:
    _add_value(result, option, spelling, word)
    if word.splits:  # its second word can be an option
        result.hidden.append(word.text)


def _add_value(result: ReadWords, option: Option, spelling: str, word: Word) -> None:
    result.spellings.setdefault(option.name, spelling)
    listed = result.values.setdefault(option.name, [])
    if option.many:
        listed.append(word)
    else:
        listed[:] = [word]  # the last counts


def _add_switch(result: ReadWords, option: Option, spelling: str) -> None:
    result.spellings.setdefault(option.name, spelling)
    result.values.setdefault(option.name, [])


def has_required(usage: Usage, read: ReadWords) -> bool:
    """True if an option that the line requires is there, or may be."""
    if not usage.needs_option:
        return True
    required = {option.name for option in usage.options.values() if option.required}
    return bool(read.hidden) or not required.isdisjoint(read.values)


def name_arguments(usage: Usage, read: ReadWords) -> dict[str, Any]:
    """Return the named arguments of a command whose words were read by a usage line."""
    arguments: dict[str, Any] = {}
    left = read.positionals[len(usage.literals) :]
    splits = False
    for name in usage.positions:
        if not left:
            break
        word = left.pop(0)
        splits = splits or word.splits
        if name:
            arguments[name] = describe_unknown(word.text) if splits else show_word(word)
    if left and usage.rest is not None:
        if usage.rest:
            arguments[usage.rest] = show_words(left)
    elif left:
        arguments["others"] = show_words(left)
    elif splits and usage.rest:
        arguments[usage.rest] = describe_unknown([word.text for word in read.positionals])
    many = {option.name: option.many for option in usage.options.values()}
    for name, words in read.values.items():
        if not name:
            continue
        if not words:
            arguments[name] = True
        else:
            arguments[name] = show_words(words) if many.get(name) else show_word(words[0])
    if read.hidden:
        for option in usage.options.values():
            if option.name and not option.takes:
                arguments.setdefault(option.name, describe_unknown(read.hidden))
    if read.unlisted:
        arguments["options"] = read.unlisted
    return arguments


def is_set(arguments: Mapping[str, Any], name: str) -> bool:
    """True if an argument is there and is not certainly false; an unknown one counts."""
    value = arguments.get(name)
    return is_unknown_value(value) or bool(value)
