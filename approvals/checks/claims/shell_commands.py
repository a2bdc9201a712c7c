"""Read what shell commands, SQL and HTTP calls would change. Pure; runs no shell."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.checks.claims.named_values import build_word_set, iterate_values, split_into_words

MAX_COMMAND_CHARACTERS: Final = 4_000  # of one argument; more is not read
_COMMAND_KEYS: Final = build_word_set(
    "command cmd commands code script shell run bash argv args commandline command_line"
)
_SQL_KEYS: Final = build_word_set("sql query queries statement statements ddl dml")
_ENDS: Final = re.compile(r"[;&|<>()\n]+")
_HEREDOC: Final = re.compile(
    r"<<-?\s*(?P<quote>['\"]?)(?P<name>\w+)(?P=quote)(?P<rest>[^\n]*)\n(?P<body>.*?)"
    r"(?:^\s*(?P=name)\s*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_WRAPPERS: Final = build_word_set(
    "sudo env time nohup exec command xargs then do else if while until nice stdbuf ! {"
)
_SHELLS: Final = frozenset(("bash", "sh", "zsh", "dash", "ssh"))
_SQL_PROGRAMS: Final = build_word_set(
    "psql mysql mariadb sqlite3 sqlcmd clickhouse-client cockroach duckdb bq snowsql"
)
# Program -> words that change something. "*" for the program as such.
_CHANGING_WORDS: Final[dict[str, frozenset[str]]] = {
    name: build_word_set(words)
    for names, words in {
        "kubectl oc": "delete apply create patch scale edit annotate label drain cordon uncordon"
        " taint set replace rollout expose autoscale",
        "terraform tofu terragrunt": "apply destroy import taint untaint",
        "pulumi": "up destroy import",
        "helm": "install upgrade uninstall delete rollback",
        "git": "push commit merge rebase clean rm revert cherry-pick",
        "docker podman": "rm rmi kill stop push prune restart",
        "systemctl": "start stop restart disable enable reload mask",
        "npm pnpm yarn": "publish unpublish",
        "cargo poetry": "publish",
        "twine": "upload",
        "gcloud az": "delete create update deploy start stop reset resize",
        "redis-cli": "del set flushall flushdb expire hset hdel incr lpush rpush unlink DEL SET"
        " FLUSHALL FLUSHDB EXPIRE HSET HDEL UNLINK",
        "alembic": "upgrade downgrade",
        "flyway liquibase": "migrate clean update rollback undo",
        "manage.py django-admin": "migrate flush loaddata",
        "argocd": "sync delete",
        "vercel fly flyctl heroku": "deploy destroy",
        "vault": "delete destroy write put patch",
        "rm rmdir mv shred truncate dd chmod chown mkfs kill killall pkill reboot shutdown userdel"
        " useradd dropdb createdb ansible-playbook rsync": "*",
    }.items()
    for name in names.split()
}
_AWS: Final = re.compile(
    r"(?:delete|put|create|update|terminate|modify|stop|start|reboot|attach|detach|remove|revoke"
    r"|authorize|register|deregister|run|publish|send|tag|untag)-[a-z-]+"
)
DELETING: Final = re.compile(
    r"\b(?:delete|rm|rmdir|rb|drop|truncate|uninstall|destroy|shred|prune|clean|terminate-\S+"
    r"|delete-\S+|flushall|flushdb|del|dropdb|mkfs)\b",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(r"(?:\./|/)?(?:tmp|var/tmp|dev/null)\b|\$\{?TMP|\.pyc$|__pycache__")
_DRY_FLAGS: Final = re.compile(
    r"--?(?:dry-?_?run|dryrun|dry|simulate|check|plan|what-?if|no-?op|noexec|preview|validate-only"
    r"|sql|just-print|recon|render-only)(?:=(?:client|server|true|all|1|yes))?",
    re.IGNORECASE,
)
_WET_FLAGS: Final = re.compile(
    r"--?(?:dry-?_?run|dryrun|simulate|check|preview|what-?if)=(?:none|false|no|0|off)"
    r"|--no-(?:dry-?run|simulate|preview)",
    re.IGNORECASE,
)
_SHORT_DRY: Final = {"rsync": "n", "git": "n", "apt": "s", "apt-get": "s", "ansible-playbook": "C"}
_SQL_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_SQL_TEXT: Final = re.compile(r"'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_SQL_CHANGES: Final = re.compile(
    r"(?:explain\s+(?:\(?\s*analy[sz]e[^)]*\)?)\s+)?(?P<verb>insert\s+into|update\s+\S+.*?\sset\b"
    r"|delete\s+from|merge\s+into|replace\s+into|truncate\b|drop\s+\w+|alter\s+\w+"
    r"|grant\s.+?\sto\b|revoke\s.+?\sfrom\b|rename\s+table|copy\s+\S+.*?\sfrom\b"
    r"|create\s+(?!temp|local\s+temp|global\s+temp)(?:or\s+replace\s+)?(?:unique\s+)?"
    r"(?:table|index|view|materialized|user|role|database|schema|function|trigger|extension"
    r"|sequence|policy|procedure))",
    re.IGNORECASE | re.DOTALL,
)
_SQL_WITH: Final = re.compile(
    r"\b(?P<verb>insert\s+into|update\s+\S+\s+set|delete\s+from|merge\s+into)\b", re.IGNORECASE
)
_SQL_INTO: Final = re.compile(
    r"select\b(?:(?!\bfrom\b).)*?\s(?P<verb>into)\s+(?!temp\b|outfile\b|@|:)\w", re.I | re.DOTALL
)
_CHANGING_METHODS: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_READING_URL: Final = re.compile(
    r"search|quer(?:y|ies)|graphql|lookup|find|list|preview|validate|dry|simulate|report|estimate"
    r"|/_count|/_msearch|/token|/login|/render|/check",
    re.IGNORECASE,
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command: its words from the program on, and its heredoc."""

    words: tuple[str, ...]
    body: str = ""
    assignments: tuple[str, ...] = ()

    @property
    def program(self) -> str:
        """Name of the program without its folder."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def is_dry(self) -> bool:
        """True if a flag keeps the command from changing anything."""
        if any(_WET_FLAGS.fullmatch(word) for word in self.words):
            return False
        if any(_DRY_FLAGS.fullmatch(word) for word in self.words[1:]):
            return True
        short = _SHORT_DRY.get(self.program)
        return short is not None and any(
            re.fullmatch(r"-[A-Za-z]+", word) is not None and short in word
            for word in self.words[1:]
        )


@dataclass(frozen=True, slots=True)
class ChangeEvidence:
    """What changes something: the dot path of its argument, and a few words of it."""

    concerns: str
    words: str
    dry: bool = False


def read_commands(arguments: Any) -> Iterator[tuple[str, list[ShellCommand]]]:
    """Yield the commands of each argument that holds any, by dot path."""
    if isinstance(arguments, str):
        yield "arguments", split_commands(arguments)
        return
    for key, value in arguments.items() if isinstance(arguments, Mapping) else ():
        if str(key).casefold() not in _COMMAND_KEYS:
            continue
        if isinstance(value, str):
            yield f"arguments.{key}", split_commands(value)
        elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            if len(value) > 1 and any(" " in item.strip() for item in value[:1]):
                for at, item in enumerate(value[:20]):
                    yield f"arguments.{key}.{at}", split_commands(item)
            else:
                yield f"arguments.{key}", split_commands(shlex.join(value))


def split_commands(text: str, depth: int = 0) -> list[ShellCommand]:
    """Split a command line into simple commands; quoted text stays one word."""
    text = text[:MAX_COMMAND_CHARACTERS]
    bodies = [match["body"] for match in _HEREDOC.finditer(text)]
    text = _HEREDOC.sub(lambda match: f" __heredoc__ {match['rest']}\n", text)
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=";&|<>()\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote without its end
        tokens = re.sub(r"[;&|\n]+", " ; ", text).split()
    commands: list[ShellCommand] = []
    words: list[str] = []
    redirects = False
    for token in [*tokens, ";"]:
        if _ENDS.fullmatch(token):
            if set(token) <= set("<>&") and token not in ("&", "&&"):
                redirects = True
                continue
            commands += _build_commands(words, bodies, depth)
            words, redirects = [], False
        elif redirects:
            redirects = False
        else:
            words.append(token)
    return commands


def _build_commands(words: list[str], bodies: list[str], depth: int) -> list[ShellCommand]:
    body = ""
    if "__heredoc__" in words:
        words = [word for word in words if word != "__heredoc__"]
        body = bodies.pop(0) if bodies else ""
    assignments = []
    while words and (words[0] in _WRAPPERS or _ASSIGNMENT.fullmatch(words[0])):
        if _ASSIGNMENT.fullmatch(words[0]):
            assignments.append(words[0])
        words = words[1:]
        while words and words[0].startswith("-") and not assignments:
            words = words[1:]
    if words and words[0] == "timeout":
        words = words[2:]
    if words and words[0] in ("python", "python3", "uv", "poetry") and "manage.py" in words[:3]:
        words = words[words.index("manage.py") :]
    if not words or words[0].startswith("#"):
        return []
    command = ShellCommand(tuple(words), body, tuple(assignments))
    nested: list[ShellCommand] = []
    if depth < 2:
        if command.program in _SHELLS and len(words) > 1:
            inner = words[-1] if " " in words[-1] else ""
            nested = split_commands(inner, depth + 1) if inner else []
        elif "--" in words and command.program in ("kubectl", "docker", "podman", "oc"):
            nested = split_commands(shlex.join(words[words.index("--") + 1 :]), depth + 1)
    return [command, *nested]


def name_changing_words(command: ShellCommand) -> str:
    """Return the words by which a command changes something, "" for none."""
    program, words = command.program, command.words
    if program in _SQL_PROGRAMS:
        texts = [word for word in words[1:] if " " in word.strip()] + [command.body]
        return next((verb for text in texts if (verb := describe_sql_change(text))), "")
    if program == "aws":
        return _describe_aws(words)
    if program == "curl":
        return _describe_curl(words)
    if program == "find":
        runs = words[words.index("-exec") + 1 :][:1] if "-exec" in words else ()
        return "find -delete" if "-delete" in words else "find -exec rm" * (runs == ("rm",))
    if program in ("sed", "perl"):
        edits = any(re.match(r"-[a-zA-Z]*i", word) for word in words[1:3])
        return f"{program} -i" if edits else ""
    if program == "gh":
        changing = {"merge", "close", "delete", "create", "edit"}
        verb = next((word for word in words[2:3] if word in changing), "")
        return f"gh {words[1]} {verb}" if verb else ""
    changing_words = _CHANGING_WORDS.get(program)
    if changing_words is None:
        return ""
    if "*" in changing_words:
        targets = [word for word in words[1:] if not word.startswith("-")]
        harmless = bool(targets) and all(_HARMLESS.search(target) for target in targets)
        return "" if harmless or "--help" in words or "--version" in words else program
    verb = _find_verb(program, words, changing_words)
    if not verb or "--help" in words or (verb == "rollout" and {"status", "history"} & set(words)):
        return ""
    return f"{program} {verb}"


def _find_verb(program: str, words: tuple[str, ...], changing_words: frozenset[str]) -> str:
    """Return the first word that is no option, if it changes something."""
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
            continue
        if word.startswith("-"):
            skip = "=" not in word and word in (
                "-n", "--namespace", "--context", "-C", "-c", "--kubeconfig", "--cluster", "-h",
                "-p", "-a", "--kube-context", "--user", "-H", "--project", "--region",
            )  # fmt: skip
            continue
        if word in changing_words:
            return word
        if program not in ("gcloud", "az", "docker", "podman", "argocd", "vault"):
            return ""
    return ""


def _describe_aws(words: tuple[str, ...]) -> str:
    plain = [word for word in words[1:] if not word.startswith("-")]
    if plain[:1] == ["s3"] and len(plain) > 1:
        verb, targets = plain[1], plain[2:]
        uploads = verb in ("cp", "mv", "sync") and targets[-1:] and targets[-1].startswith("s3://")
        return f"aws s3 {verb}" if verb in ("rm", "rb", "mb") or uploads else ""
    verb = next((word for word in plain[1:2] if _AWS.fullmatch(word)), "")
    return f"aws {plain[0]} {verb}" if verb else ""


def _describe_curl(words: tuple[str, ...]) -> str:
    method = ""
    for at, word in enumerate(words):
        if word in ("-X", "--request") and at + 1 < len(words):
            method = words[at + 1].upper()
        elif word.startswith(("-X", "--request=")) and len(word) > 2:
            method = word.removeprefix("--request=").removeprefix("-X").upper()
    if not method and any(
        word in ("-d", "-F", "-T") or word.startswith(("--data", "--form", "--json", "--upload"))
        for word in words
    ):
        method = "GET" if "-G" in words or "--get" in words else "POST"
    reads = method == "POST" and any(_READING_URL.search(word) for word in words if "/" in word)
    return f"curl {method}" if method in _CHANGING_METHODS and not reads else ""


def describe_sql_change(text: str) -> str:
    """Return the verb of the first SQL statement that changes something, or ""."""
    text = _SQL_TEXT.sub("''", _SQL_COMMENT.sub(" ", text[:MAX_COMMAND_CHARACTERS]))
    statements = [part.strip() for part in text.split(";") if part.strip()]
    if statements and re.match(r"rollback\b", statements[-1], re.IGNORECASE):
        return ""
    for statement in statements:
        match = _SQL_CHANGES.match(statement)
        if match is None and re.match(r"with\b|explain\s+\(?analy", statement, re.IGNORECASE):
            match = _SQL_WITH.search(statement)
        if match is None:
            match = _SQL_INTO.match(statement)
        if match is None:
            continue
        verb = match["verb"].split()[0].upper()
        return "SELECT INTO" if verb == "INTO" else verb
    return "mutation" if re.match(r"mutation\b[^;]*\{", text.strip()) else ""


def iterate_sql(arguments: Any) -> Iterator[tuple[str, str]]:
    """Yield the SQL texts of arguments by dot path."""
    for where, key, value in iterate_values(arguments):
        if isinstance(value, str) and _SQL_KEYS.intersection(split_into_words(key)):
            yield where, value


def find_changes(
    arguments: Any, commands_by_path: Iterable[tuple[str, list[ShellCommand]]]
) -> Iterator[ChangeEvidence]:
    """Yield what the commands, SQL and HTTP calls of the arguments would change.

    `commands_by_path` are those of `read_commands`, which are costly to read twice.
    """
    for where, commands in commands_by_path:
        for command in commands:
            words = name_changing_words(command)
            if words:
                yield ChangeEvidence(where, words, command.is_dry)
    for where, text in iterate_sql(arguments):
        verb = describe_sql_change(text)
        if verb:
            yield ChangeEvidence(where, verb)
    yield from _find_http_changes("arguments", arguments, 0)


def _find_http_changes(where: str, value: Any, depth: int) -> Iterator[ChangeEvidence]:
    if not isinstance(value, dict) or depth > 3:
        return
    url = next((value[key] for key in ("url", "path", "endpoint", "uri") if key in value), None)
    for key, item in value.items():
        if str(key).casefold() in ("method", "http_method", "verb") and isinstance(item, str):
            method = item.upper()
            reads = method == "POST" and _READING_URL.search(str(url)) is not None
            if method in _CHANGING_METHODS and url is not None and not reads:
                yield ChangeEvidence(f"{where}.{key}", method, bool(re.search("dry", str(url))))
        elif isinstance(item, dict):
            yield from _find_http_changes(f"{where}.{key}", item, depth + 1)
