"""Which command continues which session: the file of `gatebook resume-runner`.

A file names commands. The first one that matches a ruled gate and its session is taken. Words of
agents, such as the folder in a session's `meta`, are put into single arguments; no shell reads
them, and none of them may look like an option or name the program.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gatebook_client.types import Json

# What people or time may have decided, and a program should hear.
RULED = ("approved", "denied", "denied_session", "changes_requested", "expired")
_PLACEHOLDER = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_-]+)?)\}")
_FIELDS = (
    *("gate", "gate_handle", "gate_url", "status", "tool", "effect", "effect_key", "call_id"),
    *("session", "session_handle", "session_key", "agent", "repository", "branch"),
)
_MEMBERS = frozenset(
    {"name", "match", "on", "run", "cwd", "folders", "environment", "wait_for", "after_end"}
)


class RulesInvalid(ValueError):
    """The file cannot be used; the text says where and what to do."""


class CommandNotUsable(ValueError):
    """A command cannot be made for a session; the text says why."""


@dataclass(frozen=True)
class Command:
    """What is started: arguments, folder, and variables added to the environment."""

    arguments: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class ResumeRule:
    """One command of the file, with the gates and sessions that it is for."""

    name: str
    run: tuple[str, ...]
    match: Mapping[str, str] = field(default_factory=dict)
    statuses: frozenset[str] = frozenset(RULED)
    cwd: str = ""
    folders: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    waits_for_all: bool = True
    after_end: bool = True

    def is_for(self, fields: Mapping[str, str]) -> bool:
        """Return whether the rule is for a gate and a session with these fields."""
        return all(
            name in fields and fnmatchcase(fields[name], pattern)
            for name, pattern in self.match.items()
        )

    def build_command(self, fields: Mapping[str, str]) -> Command:
        """Return the command with the fields filled in. Raises CommandNotUsable."""
        arguments = [self.run[0]]
        for template in self.run[1:]:
            argument = _fill(template, fields)
            if argument.startswith("-") and not template.startswith("-"):
                raise CommandNotUsable(
                    f"The argument {template} would begin with “-”, which programs read as an"
                    " option. Write the option and its value as one argument: --option={…}."
                )
            arguments.append(argument)
        environment = {name: _fill(text, fields) for name, text in self.environment.items()}
        return Command(tuple(arguments), self._find_folder(fields), environment)

    def _find_folder(self, fields: Mapping[str, str]) -> str:
        """Return the folder to start in; one that an agent names is inside `folders`."""
        folder = _fill(self.cwd, fields)
        if folder == self.cwd:
            return folder
        path = Path(folder)
        if not path.is_absolute():
            raise CommandNotUsable(f"The folder {folder!r} of the session is not absolute.")
        real = path.resolve()
        if not any(real.is_relative_to(Path(allowed).resolve()) for allowed in self.folders):
            raise CommandNotUsable(
                f"The folder {folder!r} of the session is not inside `folders` of {self.name}."
                " Add its parent there if this agent may work in it."
            )
        return str(real)


def read_rules(path: str) -> list[ResumeRule]:
    """Read the file: JSON, or YAML where PyYAML is installed. Raises RulesInvalid."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RulesInvalid(f"{path} cannot be read: {error}") from None
    parsed = _parse(path, text)
    commands = parsed.get("commands") if isinstance(parsed, dict) else None
    if not isinstance(commands, list) or not commands or set(parsed) != {"commands"}:
        raise RulesInvalid(f"{path} must be an object with one member, `commands`: a list.")
    rules = [
        _build_rule(f"{path}: commands[{index}]", entry) for index, entry in enumerate(commands)
    ]
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise RulesInvalid(f"{path}: two commands have one name. Give each its own.")
    return rules


def _parse(path: str, text: str) -> Any:
    if path.endswith(".json"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise RulesInvalid(f"{path} is not JSON: {error}.") from None
    try:
        import yaml
    except ImportError:
        raise RulesInvalid(
            f"{path} is read as YAML, which needs PyYAML. Install gatebook-client[yaml], or write"
            " the file as JSON and name it .json."
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RulesInvalid(f"{path} is not YAML: {error}") from None


def _build_rule(where: str, entry: object) -> ResumeRule:
    if not isinstance(entry, dict):
        raise RulesInvalid(f"{where} must be an object.")
    unknown = sorted(str(name) for name in set(entry) - _MEMBERS)
    if unknown:
        raise RulesInvalid(f"{where} has the unknown member {unknown[0]}.")
    name = entry.get("name")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise RulesInvalid(f"{where} needs a `name`.")
    where = f"{where} ({name})"
    run = _read_words(where, "run", entry.get("run"))
    if not run:
        raise RulesInvalid(f"{where} needs `run`: the program and its arguments, as a list.")
    match = _read_texts(where, "match", entry.get("match", {}))
    environment = _read_texts(where, "environment", entry.get("environment", {}))
    cwd = entry.get("cwd", "")
    if not isinstance(cwd, str):
        raise RulesInvalid(f"{where}: `cwd` must be a text.")
    statuses = _read_words(where, "on", entry.get("on", list(RULED)))
    if not statuses or any(status not in RULED for status in statuses):
        raise RulesInvalid(f"{where}: `on` is a list of {', '.join(RULED)}.")
    for member in match:
        if not _is_field(member):
            raise RulesInvalid(f"{where}: `match` does not know {member}.")
    if _PLACEHOLDER.search(run[0]):
        raise RulesInvalid(f"{where}: the program must not depend on the session.")
    for template in (*run, *environment.values(), cwd):
        for placeholder in _PLACEHOLDER.findall(template):
            if not _is_field(placeholder):
                raise RulesInvalid(f"{where} has the unknown placeholder {{{placeholder}}}.")
    folders = _read_words(where, "folders", entry.get("folders", []))
    if not all(Path(folder).is_absolute() for folder in folders):
        raise RulesInvalid(f"{where}: `folders` are absolute paths.")
    if _PLACEHOLDER.search(cwd) and not folders:
        raise RulesInvalid(
            f"{where}: agents say what {cwd} is, so `folders` must list the folders that it may"
            " be in."
        )
    wait_for = entry.get("wait_for", "all")
    after_end = entry.get("after_end", True)
    if wait_for not in ("all", "any") or not isinstance(after_end, bool):
        raise RulesInvalid(f"{where}: `wait_for` is all or any, `after_end` is true or false.")
    return ResumeRule(
        name=name,
        run=run,
        match=match,
        statuses=frozenset(statuses),
        cwd=cwd,
        folders=folders,
        environment=environment,
        waits_for_all=wait_for == "all",
        after_end=after_end,
    )


def _read_words(where: str, member: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise RulesInvalid(f"{where}: `{member}` must be a list of texts.")
    return tuple(value)


def _read_texts(where: str, member: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    ):
        raise RulesInvalid(f"{where}: `{member}` must be an object of texts.")
    return dict(value)


def _is_field(name: str) -> bool:
    return name in _FIELDS or name.startswith(("meta.", "labels."))


def collect_fields(gate: Json, session: Json, url: str) -> dict[str, str]:
    """Return what rules match and commands may contain, of a gate and the session to continue.

    `meta.…` and `labels.…` are those of the session, texts and numbers only.
    """
    values: Json = {
        "gate": gate.get("id"),
        "gate_handle": gate.get("handle"),
        "gate_url": f"{url}{gate['page']}" if gate.get("page") else None,
        **{name: gate.get(name) for name in ("status", "tool", "effect", "effect_key", "call_id")},
        "session": session.get("id"),
        "session_handle": session.get("handle"),
        "session_key": session.get("key"),
        **{name: session.get(name) for name in ("agent", "repository", "branch")},
    }
    for member in ("meta", "labels"):
        inner = session.get(member)
        if isinstance(inner, dict):
            values |= {f"{member}.{name}": value for name, value in inner.items()}
    return {
        name: str(value)
        for name, value in values.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    }


def _fill(template: str, fields: Mapping[str, str]) -> str:
    def get_value(placeholder: "re.Match[str]") -> str:
        name = placeholder[1]
        if name not in fields:
            raise CommandNotUsable(f"The session has no {name}, which the command needs.")
        return fields[name]

    filled = _PLACEHOLDER.sub(get_value, template)
    if "\0" in filled or not _can_encode(filled):
        raise CommandNotUsable(f"{template} contains a character that no argument can have.")
    return filled


def _can_encode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_rule(rules: Sequence[ResumeRule], fields: Mapping[str, str]) -> ResumeRule | None:
    """Return the first rule for a gate and a session with these fields."""
    return next((rule for rule in rules if rule.is_for(fields)), None)
