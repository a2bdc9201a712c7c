"""Programs that run another command: sudo, env, timeout, xargs, find, shells. Pure.

`unwrap_words` takes one step: from the words of a command to what it runs. What it does not
understand raises UnclearError, which makes the command shell.unparsed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from yaml.nodes import Node

from db.yaml_reader import compose_yaml, expect_integer, expect_mapping, expect_text
from shell.words import Word

_FILE: Final = Path(__file__).with_name("wrappers.yaml")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class UnclearError(Exception):
    """What a command runs is not known; the message is half a sentence."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program is written that runs the command after its own words.

    `positions` of its own words stand before the command; `marker` must precede it (`run`, `exec`).
    """

    switches: frozenset[str]
    values: frozenset[str]  # options with a value
    positions: int = 0
    assignments: bool = False
    marker: str = ""


@dataclass(frozen=True, slots=True)
class Inner:
    """What a command runs: words, or a text for a shell; `assignments` are its environment."""

    words: tuple[Word, ...] = ()
    text: Word | None = None
    assignments: tuple[tuple[str, Word], ...] = ()
    arguments: tuple[Word, ...] = ()  # $0, $1 … of the text
    same_shell: bool = False  # it runs in this shell: eval, trap
    directory: Word | None = None


@cache
def load_wrappers() -> Mapping[str, Wrapper]:
    """Return the programs of wrappers.yaml by name."""
    root = compose_yaml(_FILE.read_text(encoding="utf-8"))
    top = expect_mapping(root, "the file", ("wrappers",))
    named = expect_mapping(top["wrappers"], "wrappers", None)
    return {name: _parse_wrapper(name, node) for name, node in named.items()}


def _parse_wrapper(name: str, node: Node) -> Wrapper:
    values = expect_mapping(
        node, name, ("switches", "values", "positions", "marker", "assignments")
    )
    words = {
        key: frozenset(expect_text(values[key], f"{key} of {name}", 1_000).split())
        for key in ("switches", "values")
        if key in values
    }
    return Wrapper(
        words.get("switches", frozenset()),
        words.get("values", frozenset()),
        expect_integer(values["positions"], f"positions of {name}", 1, 3)
        if "positions" in values
        else 0,
        "assignments" in values,
        expect_text(values["marker"], f"marker of {name}", 40) if "marker" in values else "",
    )


SHELLS: Final = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "ash", "rbash", "mksh", "bash5", "yash", "posh"}
)
# Shells with another language: what they are given is not understood.
OTHER_SHELLS: Final = frozenset(
    {"fish", "csh", "tcsh", "nu", "pwsh", "powershell", "cmd", "elvish", "xonsh"}
)
_SHELL_SWITCHES: Final = re.compile(r"[-+][abefhiklmnprstuvxBCEHPTDqfdlY]*")
_SHELL_VALUES: Final = frozenset(
    {"-rcfile", "-init-file", "-o", "+o", "-O", "+O", "--rcfile", "--init-file"}
)
_SHELL_LONG: Final = frozenset(
    {"--login", "--norc", "--noprofile", "--posix", "--restricted", "--verbose", "--noediting"}
)
FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_XARGS_SWITCHES: Final = frozenset(
    {
        "-0", "-r", "-t", "-p", "-x", "-o", "--null", "--no-run-if-empty", "--verbose",
        "--interactive", "--exit", "--open-tty", "--show-limits", "-i", "-e", "-l", "--replace",
        "--eof", "--max-lines",
    }
)  # fmt: skip
_XARGS_VALUES: Final = frozenset(
    {
        "-n", "-P", "-L", "-d", "-s", "-a", "-E", "-I", "-R", "-S", "-J", "--max-args",
        "--max-procs", "--delimiter", "--max-chars", "--arg-file", "--process-slot-var",
    }
)  # fmt: skip


def get_program_name(path: str) -> str:
    """Return the last part of a program's path."""
    return path.rpartition("/")[2]


def get_known_value(word: Word, role: str) -> str:
    """Return the value of a word. Raises UnclearError if it is only known when it runs."""
    if word.value is None:
        raise UnclearError(f"{role} {word.text[:60]} is only known when it runs")
    return word.value


def unwrap_words(name: str, words: Sequence[Word]) -> list[Inner] | None:
    """Return what the program `name` with these words runs; None if it is no wrapper.

    An empty list means that it runs nothing. Raises UnclearError.
    """
    if name in SHELLS:
        return _unwrap_shell(words)
    if name in ("xargs", "gxargs", "parallel"):
        return _unwrap_xargs(name, words)
    if name in ("find", "gfind", "fd", "fdfind"):
        return _unwrap_find(name, words)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    wrapper = load_wrappers().get(name)
    return None if wrapper is None else _unwrap_plain(name, wrapper, words)


def _unwrap_plain(name: str, wrapper: Wrapper, words: Sequence[Word]) -> list[Inner] | None:
    at = 0
    assignments: list[tuple[str, Word]] = []
    directory: Word | None = None
    left = wrapper.positions
    marker = wrapper.marker
    while at < len(words):
        word = words[at]
        if word.value is None and (word.splits or not word.prefix or word.prefix.startswith("-")):
            raise UnclearError(f"a word of {name} is only known when it runs")
        text = word.prefix if word.value is None else word.value
        option, sign, _ = text.partition("=")
        if text == "--":
            at += 1
            if not marker and not left:
                break
            continue
        if text.startswith("-") and len(text) > 1:
            if name == "flock" and text in ("-c", "--command"):
                return [Inner(text=words[at + 1])] if at + 1 < len(words) else []
            if name == "env" and (text.startswith("-S") or option == "--split-string"):
                return _unwrap_split_string(words[at:], text)
            if (
                (name == "nice" and re.fullmatch(r"-{1,2}\d+", text))
                or text in wrapper.switches
                or (sign and option in wrapper.switches)
            ):
                at += 1
            elif text in wrapper.values:
                if text in ("-C", "--chdir", "-D", "--cwd") and at + 1 < len(words):
                    directory = words[at + 1]
                if at + 1 < len(words) and words[at + 1].splits:
                    raise UnclearError(f"a word of {name} is only known when it runs")
                at += 2
            elif sign and option in wrapper.values:
                at += 1
            elif not text.startswith("--") and _is_cluster(text, wrapper):
                at += (
                    2
                    if "-" + text[-1] in wrapper.values and not _has_attached(text, wrapper)
                    else 1
                )
            elif name in ("sudo", "doas") and text in (
                "-l",
                "-v",
                "--list",
                "--validate",
                "--version",
                "-V",
                "--help",
            ):
                return []
            elif name in ("sudo", "doas") and text in ("-i", "-s", "--login", "--shell"):
                shell = Word("sh", "sh")
                if not (rest := words[at + 1 :]):
                    return [Inner(words=(shell,))]  # it reads its commands
                return [Inner(words=(shell, Word("-c", "-c"), _join_words(rest)))]
            elif name == "command" and text in ("-v", "-V", "-pv"):
                return []
            elif marker or text in ("--version", "--help"):
                return None  # an option before its subcommand: the mapping looks at it
            else:
                raise UnclearError(f"the option {option[:40]} of {name} is not understood")
            continue
        match = _ASSIGNMENT.fullmatch(text) if wrapper.assignments else None
        if match:
            value = match[2]
            assignments.append(
                (match[1], Word(value, value) if word.value is not None else Word(None, word.text))
            )
            at += 1
        elif marker:
            if text != marker:
                return None
            marker = ""
            at += 1
        elif left:
            left -= 1
            at += 1
        else:
            break
    if name == "flock" and at < len(words) and words[at].value in ("-c", "--command"):
        return [Inner(text=words[at + 1])] if at + 1 < len(words) else []
    if name == "hyperfine":
        return [Inner(text=word) for word in words[at:]]
    inner = tuple(words[at:])
    if marker or (left and not inner):
        return None if wrapper.marker else []
    if not inner:
        return []
    return [Inner(words=inner, assignments=tuple(assignments), directory=directory)]


def _is_cluster(text: str, wrapper: Wrapper) -> bool:
    """True for single letters in one word; the last may have a value, attached or after it."""
    for index in range(1, len(text)):
        option = "-" + text[index]
        if option in wrapper.values:
            return True
        if option not in wrapper.switches:
            return False
    return True


def _has_attached(text: str, wrapper: Wrapper) -> bool:
    first = next(index for index in range(1, len(text)) if "-" + text[index] in wrapper.values)
    return first + 1 < len(text)


def _unwrap_split_string(words: Sequence[Word], text: str) -> list[Inner]:
    """`env -S 'git push'`: the text becomes words, nearly as in a shell."""
    attached = text[2:].removeprefix("=") if text.startswith("-S") else text.partition("=")[2]
    rest = list(words[1:])
    if not attached:
        if not rest:
            return []
        attached = get_known_value(rest.pop(0), "the text of env -S")
    return [Inner(text=_join_words([Word(attached, attached), *rest]), same_shell=False)]


def _join_words(words: Sequence[Word]) -> Word:
    """Return the words as one text with blanks between, as eval, ssh and watch take them."""
    if any(word.value is None for word in words):
        return Word(None, " ".join(word.text for word in words))
    text = " ".join(word.value or "" for word in words)
    return Word(text, text)


def _unwrap_shell(words: Sequence[Word]) -> list[Inner]:
    at, reads_command, reads_stdin = 0, False, False
    if words and re.fullmatch(r"-[euvx]*n[euvx]*", words[0].value or ""):
        after = words[1].value if len(words) > 1 else "file"
        if after and after[0] not in "-+":
            return []  # -n only checks the syntax; a later option can take it back
    while at < len(words):
        word = words[at]
        if word.value is None and word.may_be_option:
            raise UnclearError("the options of a shell are only known when it runs")
        text = word.value if word.value is not None else word.prefix
        if text in _SHELL_VALUES:
            at += 2
            if text.endswith(("-file", "rcfile")):
                raise UnclearError("a shell reads a start-up file that is not shown")
        elif text in _SHELL_LONG or "-" + text in _SHELL_LONG:
            at += 1
        elif text in ("--version", "--help"):
            return []
        elif text == "--":
            at += 1
            break
        elif re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", text):
            reads_command = True
            at += 1
            if "o" in text[1:].replace("c", ""):
                at += 1
        elif text == "-":
            at += 1
            break
        elif len(text) > 1 and text[0] in "-+" and re.fullmatch(r"[-+][a-zA-Z]*o", text):
            at += 2
        elif len(text) > 1 and _SHELL_SWITCHES.fullmatch(text):
            reads_stdin = reads_stdin or "s" in text
            at += 1
        elif text.startswith("-") and len(text) > 1:
            raise UnclearError(f"the option {text[:40]} of a shell is not understood")
        else:
            break
    if reads_command:
        if at >= len(words):
            return []
        if words[at].value is None:
            raise UnclearError("the command of a shell is only known when it runs")
        return [Inner(text=words[at], arguments=tuple(words[at + 1 :]))]
    if at < len(words) and not reads_stdin:
        return [Inner(words=(Word("source", "source"), *words[at:]))]
    return [Inner(words=(Word("source", "source"), Word("/dev/stdin", "/dev/stdin")))]


def _unwrap_eval(words: Sequence[Word]) -> list[Inner]:
    listed = list(words)
    if listed and listed[0].value == "--":
        listed.pop(0)
    if not listed:
        return []
    text = _join_words(listed)
    if text.value is None:
        raise UnclearError("the text of eval is only known when it runs")
    return [Inner(text=text, same_shell=True)]


def _unwrap_trap(words: Sequence[Word]) -> list[Inner]:
    listed = [word for word in words if word.value != "--"]
    if not listed or listed[0].value in ("-", "-l", "-p", "") or len(listed) == 1:
        return []
    if listed[0].value is None:
        raise UnclearError("the command of trap is only known when it runs")
    return [Inner(text=listed[0], same_shell=True)]


def _unwrap_su(words: Sequence[Word]) -> list[Inner]:
    for at, word in enumerate(words):
        if word.value is None:
            raise UnclearError("a word of su is only known when it runs")
        if word.value in ("-c", "--command", "--session-command", "-lc") and at + 1 < len(words):
            return [Inner(text=words[at + 1])]
        if word.value.startswith("--command="):
            text = word.value.partition("=")[2]
            return [Inner(text=Word(text, text))]
        if word.value == "--" and at + 1 < len(words):
            return [Inner(words=tuple(words[at + 1 :]))]
    raise UnclearError("su starts a shell whose commands are not shown")


def _unwrap_watch(words: Sequence[Word]) -> list[Inner]:
    at = 0
    while at < len(words) and (words[at].value or "").startswith("-"):
        at += (
            2
            if words[at].value in ("-n", "--interval", "-d", "-q") and words[at].value != "-d"
            else 1
        )
    return [Inner(text=_require_text(words[at:], "watch"))] if at < len(words) else []


def _unwrap_script(words: Sequence[Word]) -> list[Inner]:
    for at, word in enumerate(words):
        text = word.value or ""
        if re.fullmatch(r"-[a-z]*c", text) and at + 1 < len(words):
            return [Inner(text=words[at + 1])]
        if text.startswith("--command="):
            return [Inner(text=Word(text.partition("=")[2], text))]
    if len(words) > 1:
        return [
            Inner(
                words=tuple(word for word in words if not (word.value or "-").startswith("-"))[1:]
            )
        ]
    raise UnclearError("script starts a shell whose commands are not shown")


def _require_text(words: Sequence[Word], name: str) -> Word:
    text = _join_words(words)
    if text.value is None:
        raise UnclearError(f"the command of {name} is only known when it runs")
    return text


def _unwrap_xargs(name: str, words: Sequence[Word]) -> list[Inner]:
    if name == "parallel":
        raise UnclearError("the commands of parallel are not understood")
    at, replaced = 0, ""
    while at < len(words):
        word = words[at]
        if word.value is None:
            if word.may_be_option:
                raise UnclearError("a word of xargs is only known when it runs")
            break
        text = word.value
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or len(text) == 1:
            break
        option = text.partition("=")[0]
        if text in ("-I", "-J"):
            replaced = words[at + 1].value or "{}" if at + 1 < len(words) else "{}"
            at += 2
        elif text.startswith("-I"):
            replaced = text[2:]
            at += 1
        elif text in ("-i", "--replace"):
            replaced = "{}"
            at += 1
        elif text in _XARGS_VALUES:
            at += 2
        elif option in _XARGS_VALUES or option in _XARGS_SWITCHES or text in _XARGS_SWITCHES:
            at += 1
        elif re.fullmatch(r"-[0rtpxo]*(?:[nPLsdEaSR].*)?", text):
            at += 2 if text[-1] in "nPLsdEaSR" else 1
        else:
            raise UnclearError(f"the option {text[:40]} of xargs is not understood")
    inner = list(words[at:])
    if not inner:
        return []
    if replaced:
        inner = [
            Word(None, word.text, word.value.partition(replaced)[0])
            if word.value is not None and replaced in word.value
            else word
            for word in inner
        ]
    else:
        inner.append(Word(None, "(words of the standard input)", splits=True))
    return [Inner(words=tuple(inner))]


def _unwrap_find(name: str, words: Sequence[Word]) -> list[Inner] | None:
    inner: list[Inner] = []
    at = 0
    if name.startswith("fd"):
        for at, word in enumerate(words):
            if word.value in ("-x", "--exec", "-X", "--exec-batch"):
                listed = [_fill_braces(item) for item in words[at + 1 :]]
                return [Inner(words=(*listed, Word(None, "(paths)", "./", splits=True)))]
        return None
    while at < len(words):
        value = words[at].value
        if value is None and words[at].splits and words[at].may_be_option:
            # A glob as the start; options of find in a file's name are not expected there.
            if not words[at].text.strip(
                "*?[]abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-"
            ):
                at += 1
                continue
            raise UnclearError("a word of find is only known when it runs")
        if value in FIND_RUNS:
            end = next(
                (index for index in range(at + 1, len(words)) if words[index].value in (";", "+")),
                len(words),
            )
            listed = [_fill_braces(word) for word in words[at + 1 : end]]
            if listed:
                inner.append(Inner(words=tuple(listed)))
            at = end
        at += 1
    return inner or None


def _fill_braces(word: Word) -> Word:
    """Return the word with an unknown path for `{}`; paths of find begin like its start."""
    if word.value is not None and "{}" in word.value:
        prefix = word.value.partition("{}")[0]
        return Word(None, word.text, prefix or "./")
    return word


def _unwrap_package_runner(words: Sequence[Word]) -> list[Inner] | None:
    """`npm exec`, `pnpm dlx` and their like run a program as npx does."""
    at = 0
    while at < len(words) and (words[at].value or "").startswith("-"):
        at += 2 if words[at].value in _PACKAGE_VALUES else 1
    if at == len(words) or words[at].value not in ("exec", "x", "dlx"):
        return None
    rest = list(words[at + 1 :])
    for index, word in enumerate(rest):
        if word.value in ("-c", "--call") and index + 1 < len(rest):
            return [Inner(text=rest[index + 1])]
        if (word.value or "").startswith("--call="):
            text = (word.value or "").partition("=")[2]
            return [Inner(text=Word(text, text))]
        if not (word.value or "").startswith("-") or word.value == "--":
            break
    return _unwrap_plain("npx", load_wrappers()["npx"], rest)


_PACKAGE_VALUES: Final = frozenset(
    {
        *("-C", "--prefix", "--cwd", "--dir", "-w", "--workspace", "--filter", "--registry"),
        *("--loglevel", "--userconfig"),
    }
)


def _unwrap_emulate(words: Sequence[Word]) -> list[Inner] | None:
    """`emulate sh -c '…'` of zsh runs code."""
    for at, word in enumerate(words):
        if word.value is None or re.fullmatch(r"-\w*c", word.value):
            return [Inner(text=words[at + 1])] if at + 1 < len(words) else []
    return None


def _unwrap_jobs(words: Sequence[Word]) -> list[Inner] | None:
    """`jobs -x` runs a command."""
    if words and words[0].value == "-x":
        return [Inner(words=tuple(words[1:]))] if len(words) > 1 else []
    return None


_SPECIAL: Final = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), _unwrap_package_runner),
    "emulate": _unwrap_emulate,
    "jobs": _unwrap_jobs,
    "eval": _unwrap_eval,
    "trap": _unwrap_trap,
    "su": _unwrap_su,
    "runuser": _unwrap_su,
    "watch": _unwrap_watch,
    "script": _unwrap_script,
}
