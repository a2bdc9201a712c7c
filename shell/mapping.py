"""The mapping of commands to tools: default_mapping.yaml and what an operator adds.

`programs` names each program with its `options`, which may stand before a subcommand too, and
with its tools; a tool has an `effect` and usage lines (shell/usage_lines.py). Further keys of a
tool: `destroys` and `reads`, arguments with which the effect is another; `target`, facts from
arguments; `reader`, a function of shell/argument_readers.py that completes arguments.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from yaml.nodes import Node

from db.yaml_reader import (
    compose_yaml,
    expect_choice,
    expect_mapping,
    expect_sequence,
    expect_text,
    make_document_error,
)
from shell.argument_readers import NO_STDIN, READERS, CommandContext, Stdin
from shell.command_effects import CHANGES, DESTROYS, LOCAL, READS, RUNS, is_graver
from shell.usage_lines import (
    MAX_USAGE_CHARACTERS,
    Option,
    ReadWords,
    Usage,
    UsageError,
    has_required,
    is_set,
    name_arguments,
    parse_options,
    parse_usage,
    read_words,
)
from shell.words import Word, is_unknown_value
from shell.wrappers import UnclearError

MAX_PROGRAMS: Final = 1_000
MAX_LINES: Final = 200  # of one tool
FACTS: Final = ("repository", "ref", "environment", "resource")
_DEFAULT_FILE: Final = Path(__file__).with_name("default_mapping.yaml")
_TEMPLATE_NAME: Final = re.compile(r"\{([a-z0-9_]+)\}")
_MAPPED_EFFECTS: Final = (READS, LOCAL, CHANGES, DESTROYS, RUNS)


@dataclass(frozen=True, slots=True)
class MappedTool:
    """A tool and when a command is one of its calls."""

    name: str
    effect: str
    destroys: tuple[str, ...] = ()  # arguments that make it graver
    reads: tuple[str, ...] = ()  # arguments that make it harmless: dry runs
    target: tuple[tuple[str, str], ...] = ()  # (fact, template of arguments)
    readers: tuple[str, ...] = ()
    read_tool: str = ""  # its name where the reader knows that it only reads


@dataclass(frozen=True, slots=True)
class MappedCall:
    """One command as a call of a tool. `target` has facts with their sources."""

    tool: str
    arguments: dict[str, Any]
    effect: str
    target: dict[str, dict[str, str]] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """The usage lines of one program, by first subcommand and in the order of their choice."""

    name: str
    options: Mapping[str, Option]
    by_word: Mapping[str, tuple[tuple[Usage, MappedTool], ...]]
    without_word: tuple[tuple[Usage, MappedTool], ...]

    def map_words(self, words: Sequence[Word], context: CommandContext) -> MappedCall | None:
        """Return the call that the words after the program are; None if no line applies."""
        if self.by_word:
            before = read_words(words, self.options, ends_options=1)
            if before.positionals:
                word = before.positionals[0].value
                if word is None:
                    raise UnclearError(
                        f"the subcommand {before.positionals[0].text[:60]} of {self.name} is only"
                        " known when it runs"
                    )
                call = _map_usages(self.by_word.get(word, ()), words, context)
                if call is not None:
                    return call
        return _map_usages(self.without_word, words, context)


@dataclass(frozen=True, slots=True)
class ShellMapping:
    """The programs of a mapping by name. An operator's come before the default ones."""

    programs: Mapping[str, tuple[Program, ...]]

    def map_program(
        self, name: str, words: Sequence[Word], stdin: Stdin = NO_STDIN
    ) -> MappedCall | None:
        """Return the call of a command line; None if the mapping does not have it."""
        context = CommandContext(name, stdin)
        for program in self.programs.get(name, ()):
            call = program.map_words(words, context)
            if call is not None:
                return call
        return None

    def has_program(self, name: str) -> bool:
        """True if a usage line begins with this program."""
        return name in self.programs

    def list_tools(self) -> list[str]:
        """Return the names of all tools, sorted."""
        tools = (
            tool
            for programs in self.programs.values()
            for program in programs
            for pairs in (*program.by_word.values(), program.without_word)
            for _, tool in pairs
        )
        return sorted({name for tool in tools for name in (tool.name, tool.read_tool) if name})


def _map_usages(
    pairs: Iterable[tuple[Usage, MappedTool]], words: Sequence[Word], context: CommandContext
) -> MappedCall | None:
    for usage, tool in pairs:
        least = len(usage.literals) + len(usage.positions)
        read = read_words(
            words,
            usage.options,
            ends_options=least if usage.ends_options else None,
            options_before=usage.options_before,
        )
        if len(read.positionals) < len(usage.literals) or not has_required(usage, read):
            continue
        if least == 0 and usage.rest is None and read.positionals:
            continue
        if all(
            word.value in choices
            for word, choices in zip(read.positionals, usage.literals, strict=False)
        ):
            return _build_call(usage, tool, read, context)
    return None


def _build_call(
    usage: Usage, tool: MappedTool, read: ReadWords, context: CommandContext
) -> MappedCall:
    arguments = name_arguments(usage, read)
    name, effect = tool.name, tool.effect
    for reader in tool.readers:
        arguments, effect = READERS[reader](arguments, effect, context)
    only_reads = effect == READS or (effect == LOCAL and is_graver(tool.effect, LOCAL))
    if only_reads and tool.read_tool:
        name = tool.read_tool
    destroying = [word for word in tool.destroys if is_set(arguments, word)]
    if destroying and is_graver(DESTROYS, effect):
        effect = DESTROYS
    # npm reads the word after a switch as its value if it can be one.
    takes_back = any(word.value in ("false", "null") for word in read.positionals)
    harmless = [
        word
        for word in tool.reads
        if arguments.get(word) in (True, "client", "server")
        and word not in read.negated
        and not takes_back
    ]
    if harmless and not is_graver(effect, DESTROYS):
        effect = READS
    words = " ".join(
        "|".join(sorted(choices)) if len(choices) < 4 else read.positionals[at].text
        for at, choices in enumerate(usage.literals)
    )
    why = f"the line {context.program} {words}".rstrip()
    if harmless or destroying:
        why += f", {effect} because of {(harmless or destroying)[0]}"
    return MappedCall(name, arguments, effect, _build_target(tool, arguments, read), why)


def _build_target(
    tool: MappedTool, arguments: Mapping[str, Any], read: ReadWords
) -> dict[str, dict[str, str]]:
    target: dict[str, dict[str, str]] = {}
    for fact, template in tool.target:
        if fact in target:
            continue
        names = _TEMPLATE_NAME.findall(template)
        values = {name: _format_fact(arguments.get(name)) for name in names}
        if not all(values.values()):
            continue
        sources = " and ".join(read.spellings.get(name, name) for name in names)
        text = _TEMPLATE_NAME.sub(lambda match: values[match[1]], template)  # noqa: B023
        unknown = any(is_unknown_value(arguments[name]) for name in names)
        target[fact] = {
            "value": text,
            "source": f"command: {sources}" + (", known only when it runs" if unknown else ""),
        }
    return target


def _format_fact(value: Any) -> str:
    if is_unknown_value(value):
        value = value["unknown"]
    if isinstance(value, list):
        return " ".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


def parse_mapping(text: str) -> ShellMapping:
    """Return the mapping in a YAML text. Raises DocumentError."""
    top = expect_mapping(compose_yaml(text), "the mapping", ("programs",))
    named = expect_mapping(top["programs"], "`programs`", None) if "programs" in top else {}
    if len(named) > MAX_PROGRAMS:
        raise make_document_error(top["programs"], f"has more than {MAX_PROGRAMS} programs.")
    programs: dict[str, tuple[Program, ...]] = {}
    for names, node in named.items():
        first, *others = names.split("|")
        program = _parse_program(first, node)
        programs[first] = (program,)
        programs |= {name: (replace(program, name=name),) for name in others}
    return ShellMapping(programs)


def _parse_program(name: str, node: Node) -> Program:
    label = f"program {name!r}"
    values = expect_mapping(node, label, ("options", "tools", "target", "reader"))
    shared = _read_target(values["target"], label) if "target" in values else ()
    readers = (
        (expect_choice(values["reader"], f"reader of {label}", tuple(READERS)),)
        if "reader" in values
        else ()
    )
    options: dict[str, Option] = {}
    if "options" in values:
        text = expect_text(values["options"], f"options of {label}", MAX_USAGE_CHARACTERS)
        options = _read_usage(values["options"], label, parse_options, text)
    pairs: list[tuple[Usage, MappedTool]] = []
    for tool_name, tool_node in expect_mapping(values["tools"], f"tools of {label}", None).items():
        tool, lines = _parse_tool(tool_name, tool_node, label)
        tool = replace(tool, target=tool.target + shared, readers=tool.readers + readers)
        pairs += [
            (_read_usage(tool_node, label, parse_usage, f"{name} {line}".strip()), tool)
            for line in lines
        ]
    return build_program(name, options, pairs)


def build_program(
    name: str, options: Mapping[str, Option], pairs: Iterable[tuple[Usage, MappedTool]]
) -> Program:
    """Return a program with its lines in the order of their choice.

    Lines with more words come first, then those that require an option, then the order given.
    """
    ordered = sorted(pairs, key=lambda pair: (-len(pair[0].literals), not pair[0].needs_option))
    by_word: dict[str, list[tuple[Usage, MappedTool]]] = {}
    without: list[tuple[Usage, MappedTool]] = []
    for usage, tool in ordered:
        complete = replace(
            usage,
            options={**options, **usage.options},
            options_before={**usage.options, **options} if usage.literals else None,
        )
        if usage.literals:
            for word in usage.literals[0]:
                by_word.setdefault(word, []).append((complete, tool))
        else:
            without.append((complete, tool))
    return Program(
        name, options, {word: tuple(listed) for word, listed in by_word.items()}, tuple(without)
    )


def _parse_tool(name: str, node: Node, label: str) -> tuple[MappedTool, list[str]]:
    label = f"tool {name!r} of {label}"
    values = expect_mapping(
        node, label, ("effect", "usage", "destroys", "reads", "target", "reader", "read_tool")
    )
    for key in ("effect", "usage"):
        if key not in values:
            raise make_document_error(node, f"{label} has no `{key}`.")
    lines = [
        expect_text(item, f"usage of {label}", MAX_USAGE_CHARACTERS)
        for item in expect_sequence(values["usage"], f"usage of {label}", MAX_LINES)
    ]
    names = {
        key: tuple(
            expect_text(item, f"{key} of {label}", 40)
            for item in expect_sequence(values[key], f"{key} of {label}", 20)
        )
        for key in ("destroys", "reads")
        if key in values
    }
    target = _read_target(values["target"], label) if "target" in values else ()
    readers = (
        (expect_choice(values["reader"], f"reader of {label}", tuple(READERS)),)
        if "reader" in values
        else ()
    )
    effect = expect_choice(values["effect"], f"effect of {label}", _MAPPED_EFFECTS)
    return (
        MappedTool(
            name,
            effect,
            names.get("destroys", ()),
            names.get("reads", ()),
            target,
            readers,
            expect_text(values["read_tool"], f"read_tool of {label}", 100)
            if "read_tool" in values
            else "",
        ),
        lines,
    )


def _read_target(node: Node, label: str) -> tuple[tuple[str, str], ...]:
    facts = expect_mapping(node, f"target of {label}", FACTS)
    return tuple(
        (fact, expect_text(template, f"{fact} of {label}", 200))
        for fact, item in facts.items()
        for template in expect_sequence(item, f"{fact} of {label}", 10)
    )


def _read_usage(node: Node, label: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except UsageError as error:
        raise make_document_error(node, f"a usage line of {label} {error}") from error


def extend_mapping(mapping: ShellMapping, lines: Iterable[tuple[str, str, str]]) -> ShellMapping:
    """Return the mapping with (tool, effect, usage line) of an operator before its own.

    Lines that cannot be read are left out; the reader of tools.yaml refuses them.
    """
    by_program: dict[str, list[tuple[Usage, MappedTool]]] = {}
    for tool, effect, line in lines:
        try:
            usage = parse_usage(line)
        except UsageError:
            continue
        for name in usage.programs:
            by_program.setdefault(name, []).append((usage, MappedTool(tool, effect)))
    programs = dict(mapping.programs)
    for name, pairs in by_program.items():
        default = programs.get(name, ())
        options = default[0].options if default else {}
        programs[name] = (build_program(name, options, pairs), *default)
    return ShellMapping(programs)


@cache
def load_default_mapping() -> ShellMapping:
    """Return the mapping that Gatebook ships."""
    return parse_mapping(_DEFAULT_FILE.read_text(encoding="utf-8"))


def __getattr__(name: str) -> ShellMapping:
    if name == "DEFAULT_MAPPING":
        return load_default_mapping()
    raise AttributeError(name)
