"""Complete the arguments of programs whose words mean more than a usage line says. Pure.

Each reader takes the named arguments, the effect of the tool and the standard input, and returns
arguments and effect. It may only lower an effect where the words make that certain.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from shell import sql_text
from shell.command_effects import CHANGES, DESTROYS, LOCAL, READS, RUNS
from shell.words import describe_unknown, is_unknown_value


class Stdin(NamedTuple):
    """The standard input of a command: whether it has one, and its text if that is known."""

    exists: bool = False
    text: str | None = None


NO_STDIN: Final = Stdin()


class CommandContext(NamedTuple):
    """What a reader sees of a command besides its arguments."""

    program: str
    stdin: Stdin = NO_STDIN


_Arguments = dict[str, Any]
_Reader = Callable[[_Arguments, str, CommandContext], tuple[_Arguments, str]]

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
_REMOTE_PATH: Final = re.compile(
    r"(?:(?P<user>[^@/:\s]+)@)?(?P<host>\[[^\]]+\]|[^/:\s]+):(?P<path>.*)"
)
_DEPLOYS: Final = re.compile(
    r"(?:^|[^a-z])(?:deploy|release|publish|push|upload|prod|production|migrat|destroy|apply"
    r"|rollback|provision|promote|rollout|ship|seed|dist-?tag|sync|terraform|helm|k8s)",
    re.IGNORECASE,
)
# Code that reaches outside or runs commands, by the words that it needs for that.
_REACHES: Final = re.compile(
    r"\b(?:subprocess|os\s*\.\s*(?:system|popen|exec\w*|spawn\w*|posix_spawn\w*)|socket|requests|httpx"
    r"|urllib\w*|aiohttp|http\s*\.\s*client|ftplib|smtplib|telnetlib|paramiko|fabric|boto3?|kubernetes"
    r"|docker|psycopg\w*|pymysql|redis|pymongo|eval|exec|compile|__import__|importlib|getattr|pty"
    r"|ctypes|multiprocessing|runpy|pip|git|child_process|execSync|spawn\w*|fetch|axios|XMLHttpRequest"
    r"|https?|net|dgram|tls|require|import\s*\(|process\s*\.\s*binding|system|backticks|qx|popen"
    r"|open3|Net::|LWP|curl|shell_exec|passthru|proc_open|fsockopen|Kernel|IO\s*\.\s*popen|asyncio"
    r"|webbrowser|builtins|globals|breakpoint|pickle|marshal|codecs|base64)\b|`|\bopen\s*\(\s*['\"]?\|"
)
_CLOUD_READS: Final = re.compile(
    r"(?:describe|list|get|head|show|ls|lookup|search|wait|help|version|info|tail|query|scan"
    r"|batch-get|check|estimate|validate|preview|print|view)(?:-.*)?"
)
# Verbs that begin like a read and are none, or hand out secrets.
_CLOUD_SECRETS: Final = re.compile(
    r"get-(?:secret-value|session-token|federation-token|login-password|login|credentials"
    r"|credential-report|access-token|random-password|object-lambda.*)|print-(?:access|identity)-token"
    r"|get-access-token|list-keys|show-secret"
)
_CLOUD_DESTROYS: Final = re.compile(
    r"(?:delete|terminate|remove|purge|destroy|deregister|rm|rb|rmdir|revoke|reset|wipe|drop)(?:-.*)?"
)
_CLOUD_VERBS: Final = re.compile(
    r"(?:create|update|set|add|deploy|start|stop|restart|apply|import|export|enable|disable|attach"
    r"|detach|patch|replace|resize|run|submit|ssh|scp|cp|mv|sync|mb|put|invoke|publish|send|login"
    r"|activate|register|rollback|resume|suspend|grant|bind|assign|restore|connect|upload|configure"
    r"|move|copy|promote|failover|cancel|approve|reject|clone|modify|reboot|associate"
    r"|disassociate|authorize|tag|untag|assume|undelete|rollout|scale|up|down)(?:-.*)?"
)


def _as_list(value: Any) -> list[str]:
    """Return the known texts of an argument."""
    if isinstance(value, str):
        return [value]
    if is_unknown_value(value):
        value = value["unknown"]
        return [value] if isinstance(value, str) else list(value)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def read_kubectl(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Split `deployment/web` and `pods a b` into kind and names."""
    resources = arguments.pop("resources", None)
    if is_unknown_value(resources):
        return arguments | {"kind": resources, "names": resources}, effect
    words = _as_list(resources)
    if words:
        kinds = list(dict.fromkeys(word.partition("/")[0] for word in words if "/" in word))
        if kinds:
            names = [word.partition("/")[2] for word in words if "/" in word]
        else:
            kinds, names = words[:1], words[1:]
        arguments["kind"] = ",".join(kinds)
        if names:
            arguments["name"] = names[0]
            arguments["names"] = names
    return arguments, effect


def read_http(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell method, host and data of curl, wget and HTTPie."""
    sends = [name for name in ("data", "form", "upload", "json", "body_file") if name in arguments]
    words = _as_list(arguments.pop("words", None))  # HTTPie: [METHOD] URL [ITEM…]
    if words:
        if len(words) > 1 and words[0].isupper():
            arguments["method"] = words.pop(0)
        arguments["urls"], items = words[:1], words[1:]
        if any(re.search(r"(?<!=)(?::?=)(?!=)|@", item) for item in items):
            sends.append("data")
        arguments["headers"] = items
    unclear = any(
        is_unknown_value(arguments.get(name)) for name in ("method", "get", "head")
    ) or any(name in arguments for name in ("next", "config", "quote", "mail_from"))
    unclear = unclear or any(
        text.startswith(("-:", "--expand-")) for text in arguments.get("options", [])
    )
    unclear = unclear or any(map(_OVERRIDES.match, _as_list(arguments.get("headers"))))
    method = arguments.get("method")
    if isinstance(method, str):
        method = method.upper()
    elif not is_unknown_value(method):
        if arguments.get("upload"):
            method = "PUT"
        elif sends and arguments.get("get") is not True:
            method = "POST"
        else:
            method = "HEAD" if arguments.get("head") is True else "GET"
    urls = arguments.pop("urls", None)
    texts = _as_list(urls)
    kept: _Arguments = {
        "method": method,
        "url": urls[0] if isinstance(urls, list) and urls else urls,
    }
    if is_unknown_value(urls):
        kept["url"] = describe_unknown(" ".join(texts))
    elif len(texts) > 1:
        kept["urls"] = texts
    hosts = list(dict.fromkeys(filter(None, map(parse_host, texts))))
    unclear = unclear or any(map(_OTHER_SCHEME.match, texts))
    if hosts:
        kept["host"] = hosts[0]
    elif urls:
        kept["host"] = describe_unknown(" ".join(texts))
    if isinstance(kept["url"], str):
        kept["url"] = strip_password(kept["url"])
    kept["data"] = bool(sends)
    kept |= {name: arguments[name] for name in ("output", "config", "others") if name in arguments}
    if not unclear and method in _SAFE_METHODS:
        return kept, LOCAL if "output" in arguments or "remote_name" in arguments else READS
    return kept, DESTROYS if method == "DELETE" else effect


# Schemes by which even an address can send commands.
_OTHER_SCHEME: Final = re.compile(r"\s*(?!https?:|file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Headers that make another method of GET, or come from a file.
_OVERRIDES: Final = re.compile(
    r"['\"]?(?:[@$`]|\s*x-(?:http-)?method(?:-override)?\s*:)", re.IGNORECASE
)


def parse_host(url: str) -> str:
    """Return the host of a URL as a program takes it, also without a scheme; "" if unclear."""
    text = url if "://" in url else f"http://{url}"
    try:
        host = urlsplit(text).hostname or ""
    except ValueError:
        return ""
    return "" if "$" in host or "`" in host else host


def read_sql(arguments: _Arguments, effect: str, context: CommandContext) -> tuple[_Arguments, str]:
    """Tell the statements of psql, mysql and sqlite3, and whether they only read."""
    read_database_url(arguments)
    statements = arguments.pop("sql", None)
    texts = _as_list(statements)
    unknown = is_unknown_value(statements)
    if not texts and context.stdin.exists and "file" not in arguments:
        texts, unknown = [context.stdin.text or ""], context.stdin.text is None
    known_reads = False
    if unknown:
        arguments["sql"] = describe_unknown(" ".join(texts) or "standard input")
    elif texts:
        arguments["sql"] = "\n".join(texts)
        known_reads = all(map(sql_text.is_reading_sql, texts)) and "file" not in arguments
    elif arguments.get("list") is True or arguments.get("version") is True:
        known_reads = True
    arguments["reads_only"] = known_reads
    return arguments, READS if known_reads else effect


def read_database_url(arguments: _Arguments) -> None:
    """Tell host, user and database of `postgres://user:password@host/database`."""
    text = arguments.get("database")
    if not isinstance(text, str) or "://" not in text:
        return
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username
    except ValueError:
        return
    arguments["database"] = parts.path.strip("/")
    if host:
        arguments.setdefault("host", host)
    if user:
        arguments.setdefault("user", user)


def read_redis(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell whether a Redis command reads or deletes."""
    words = arguments.pop("words", [])
    listed = [*_as_list(arguments.pop("verb", None)), *_as_list(words)]
    arguments["statement"] = " ".join(listed)
    if is_unknown_value(words) or not listed:
        return arguments | {"reads_only": False}, effect
    reads = sql_text.is_reading_redis(listed)
    arguments["reads_only"] = reads
    if reads:
        return arguments, READS
    return arguments, DESTROYS if sql_text.is_destroying_redis(listed) else effect


def read_mongo(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell whether what mongosh evaluates is one known read."""
    read_database_url(arguments)
    texts = _as_list(arguments.get("sql"))
    reads = (
        bool(texts)
        and not is_unknown_value(arguments.get("sql"))
        and "file" not in arguments
        and all(map(sql_text.is_reading_mongo, texts))
    )
    return arguments | {"reads_only": reads}, READS if reads else effect


def read_cloud(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell service and action of aws, gcloud and az, and whether the action is a known read."""
    words = arguments.pop("words", None)
    listed = _as_list(words)
    if is_unknown_value(words) and not _find_verb(listed)[0]:
        return arguments | {"service": words, "action": words}, effect
    verb, at = _find_verb(listed)
    if listed:
        arguments["service"] = " ".join(listed[:at]) if at else listed[0]
    arguments["action"] = verb or " ".join(listed[1:3])
    if len(listed) > at + 1:
        arguments["others"] = listed[at + 1 :]
    if not verb:
        return arguments, READS if listed in (["version"], ["info"], ["help"]) else effect
    if _CLOUD_READS.fullmatch(verb) and not _CLOUD_SECRETS.fullmatch(verb):
        return arguments, READS
    if _CLOUD_DESTROYS.fullmatch(verb) or arguments.get("delete") is True:
        return arguments, DESTROYS
    if arguments["service"] == "s3" and verb in ("cp", "sync") and at + 2 < len(listed):
        source, target = listed[at + 1 : at + 3]
        if source.startswith("s3://") and not target.startswith("s3://"):
            return arguments, LOCAL
    return arguments, effect


def _find_verb(words: list[str]) -> tuple[str, int]:
    """Return the first word after the service that is a verb, and its position."""
    for at, word in enumerate(words[1:], 1):
        if any(
            verbs.fullmatch(word)
            for verbs in (_CLOUD_SECRETS, _CLOUD_DESTROYS, _CLOUD_VERBS, _CLOUD_READS)
        ):
            return word, at
    return "", 0


def read_copy(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell host and direction of scp and rsync."""
    paths = arguments.pop("paths", None)
    words = _as_list(paths)
    arguments["paths"] = paths
    if is_unknown_value(arguments.get("rsh")) or "rsh" in arguments:
        words_of_rsh = _as_list(arguments.get("rsh"))
        if (
            not words_of_rsh
            or words_of_rsh[0].split()[:1] != ["ssh"]
            or "Command" in words_of_rsh[0]
        ):
            return arguments, RUNS
    is_local = bool(words) and all(word.startswith(("/", "./", "../")) for word in words)
    if (is_unknown_value(paths) and not is_local) or not words:
        return arguments | {"direction": "unknown"}, effect
    remote = [match for word in words if (match := _match_remote(word))]
    if not remote:
        return arguments | {"direction": "local"}, LOCAL
    arguments["host"] = remote[-1]["host"]
    outwards = _match_remote(words[-1]) is not None
    arguments["direction"] = "to host" if outwards else "from host"
    if not outwards:
        return arguments, LOCAL
    return arguments, DESTROYS if arguments.get("delete") else effect


def _match_remote(word: str) -> re.Match[str] | None:
    if word.startswith(("/", "./", "../", "~")):
        return None
    if word.startswith("rsync://"):
        return re.match(r"rsync://(?P<host>[^/]+)", word)
    return _REMOTE_PATH.fullmatch(word)


def read_api_call(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell the method of `gh api` and `glab api`, which is POST as soon as fields are sent."""
    fields = arguments.get("field")
    method = arguments.get("method")
    if is_unknown_value(method):
        return arguments, effect
    sends = "field" in arguments or "input" in arguments
    method = method.upper() if isinstance(method, str) else "POST" if sends else "GET"
    arguments["method"] = method
    endpoint = arguments.get("endpoint")
    if endpoint == "graphql":
        texts = _as_list(fields)
        reads = bool(texts) and not is_unknown_value(fields) and "input" not in arguments
        reads = reads and not any(
            "mutation" in text or text.startswith("query=@") for text in texts
        )
        return arguments, READS if reads else effect
    if is_unknown_value(endpoint):
        return arguments, effect
    if method in _SAFE_METHODS:
        return arguments, READS
    return arguments, DESTROYS if method == "DELETE" else effect


def read_code(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell the code of an interpreter; code that can reach outside counts as unknown."""
    code = arguments.get("code")
    if arguments.get("version") is True:
        return arguments, READS
    if is_unknown_value(code):
        return arguments, RUNS
    texts = _as_list(code)
    if not texts and arguments.get("script") in (None, "-") and "module" not in arguments:
        if not context.stdin.exists:
            return arguments, effect
        if context.stdin.text is None:
            return arguments | {"code": describe_unknown("standard input")}, RUNS
        texts = [context.stdin.text]
    if texts:
        text = "\n".join(texts)
        arguments["code"] = text
        if _REACHES.search(text):
            return arguments, RUNS
    return arguments, effect


def read_targets(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell the targets of make and `npm run`: one that is called deploy may deploy."""
    targets = arguments.get("targets")
    names = _as_list(targets)
    if "code" in arguments or (arguments.get("file") in _STDIN_FILES and context.stdin.exists):
        return arguments, RUNS  # rules of make in the command itself
    if context.program in _ONE_TARGET:
        names = names[:1]
    unknown = is_unknown_value(targets) and any(re.search(r"[$`*?]", name) for name in names)
    if unknown or any(map(_DEPLOYS.search, names)):
        return arguments, RUNS
    return arguments, effect


_STDIN_FILES: Final = ("-", "/dev/stdin", "/dev/fd/0")
_ONE_TARGET: Final = frozenset(
    {"npm", "pnpm", "yarn", "bun", "cargo", "poetry", "uv", "hatch", "pdm"}
)
_AWK_RUNS: Final = re.compile(r"\bsystem\b|\||getline|@load|@include|/inet/")
_SED_RUNS: Final = re.compile(
    r"(?:^|[;{}\n]|[0-9$/,!~+])\s*e(?:\s|$)|(?:^|[^\w\\])s(?P<sign>[^\w\s\\]).*?(?P=sign).*?(?P=sign)[gpiIMm0-9]*[ew]",
    re.DOTALL,
)


def read_awk(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Refuse awk programs that run commands or connect."""
    program = arguments.get("code")
    if "file" in arguments:  # a program that is not shown
        return arguments, RUNS
    if is_unknown_value(program):
        return arguments, RUNS
    text = " ".join(_as_list(program))
    if _AWK_RUNS.search(re.sub(r'"(?:[^"\\]|\\.)*"', '""', text).replace("||", "")):
        return arguments, RUNS
    return arguments, LOCAL if re.search(r">\s*[\"(a-z]", text) else effect


def read_sed(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell whether sed edits files; refuse scripts that run commands."""
    scripts = arguments.get("script")
    given = "script" in arguments or "file" in arguments
    files = arguments.get("files")
    if not given:
        words = _as_list(files)
        if is_unknown_value(files) and (not words or re.search(r"[$`]", words[0])):
            scripts = files
        elif words:
            if words[0] == "" and len(words) > 1:  # the suffix of BSD: sed -i '' SCRIPT
                words.pop(0)
            arguments["script"] = scripts = words[0]
            if not is_unknown_value(files):
                arguments["files"] = words[1:]
    if arguments.get("sandbox") is not True and (
        "file" in arguments
        or is_unknown_value(scripts)
        or any(_SED_RUNS.search(text) for text in _as_list(scripts))
    ):
        return arguments, RUNS
    return arguments, LOCAL if "suffix" in arguments or re.search(
        r"\bw\s*[\w./]", " ".join(_as_list(scripts))
    ) else effect


def strip_password(text: str) -> str:
    """Return a URL without the user and the password in it."""
    return re.sub(r"(://)[^/@\s]*@", r"\1", text)


def list_texts(values: Iterable[Any]) -> list[str]:
    """Return all known texts of several arguments."""
    return [text for value in values for text in _as_list(value)]


# Configuration keys that change no command: everything else given by `git -c` may run code.
_SAFE_CONFIG: Final = re.compile(
    r"(?:user|author|committer|color|advice|init|log|diff\.(?:renames|algorithm|context|noprefix|mnemonicprefix|wserrorhighlight|colormoved)"
    r"|core\.(?:quotepath|autocrlf|filemode|abbrev|eol|safecrlf|longpaths|ignorecase|precomposeunicode|whitespace|commentchar)"
    r"|commit\.gpgsign|tag\.gpgsign|pull|merge\.(?:conflictstyle|ff|renames)|rebase\.(?:autostash|autosquash)|push\.(?:default|autosetupremote)"
    r"|safe|http\.(?:extraheader|sslverify|postbuffer|lowspeed\w*|proxy|version)|protocol|fetch\.prune|gc|maintenance|status|column|grep"
    r"|index|feature|submodule|blame|i18n|pack|checkout|credential\.usehttppath|receive|transfer|lfs\.(?:concurrenttransfers|skipdownloaderrors))\b.*",
    re.IGNORECASE,
)
_UNKNOWN_SIGNS: Final = tuple("$`*?[({")  # how the text of a word begins that is not known
_PAGERS: Final = ("cat", "", "less", "true", "less -R", "more")


def read_git(arguments: _Arguments, effect: str, context: CommandContext) -> tuple[_Arguments, str]:
    """Tell the refs of a push; refuse configuration and options that run code."""
    directories = _as_list(arguments.get("directory"))
    if directories and not is_unknown_value(arguments["directory"]):
        arguments["directory"] = posixpath.join(*directories)
    runs_code = any(
        name in arguments
        for name in ("receive_pack", "upload_pack", "exec", "config_env", "clone_config")
    ) or isinstance(arguments.get("exec_path"), str)
    for setting in _as_list(arguments.get("config")):
        key, _, value = setting.partition("=")
        if key.lower() in (
            "core.pager",
            "core.editor",
            "sequence.editor",
            "pager.log",
            "pager.diff",
        ):
            runs_code = runs_code or value not in _PAGERS
        elif not _SAFE_CONFIG.fullmatch(key):
            runs_code = True
    if is_unknown_value(arguments.get("config")):
        runs_code = True
    texts = list_texts(arguments.values())
    runs_code = runs_code or any(text.startswith(("ext::", "fd::")) for text in texts)
    unlisted = arguments.get("options", [])
    if any(
        text.startswith(
            (
                "-O",
                "--open-files-in-pager",
                "--upload-p",
                "--exec",
                "--receive-p",
                "--extcmd",
                "--tool",
            )
        )
        for text in unlisted
    ):
        runs_code = True
    for name in ("remote", "url", "repository"):
        if isinstance(arguments.get(name), str):
            arguments[name] = strip_password(arguments[name])
    if "refs" in arguments or "remote" in arguments:
        refs = arguments.get("refs")
        if is_unknown_value(refs):
            texts = _as_list(refs)
            for name, sign in (("force", "+"), ("delete", ":")):
                if any(text.startswith(sign) or text[:1] in _UNKNOWN_SIGNS for text in texts):
                    arguments.setdefault(name, refs)
        else:
            words = _as_list(refs)
            if words:
                arguments["refspec"] = " ".join(words)
            if any(word.startswith("+") for word in words):
                arguments["force"] = True
            if any(word.startswith(":") and len(word) > 1 for word in words):
                arguments["delete"] = True
    if runs_code:
        return arguments | {"runs_code": True}, RUNS
    if effect == READS and any(name in arguments for name in ("output", "ext_diff", "textconv")):
        return arguments, LOCAL
    return arguments, effect


def read_git_listing(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """`git branch`, `git tag`, `git remote` and `git config KEY` alone only list."""
    changing = {name for name, value in arguments.items() if name not in ("directory", "config")}
    if not changing or changing == {"key"}:
        return arguments, READS
    return arguments, effect


def read_docker(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """A container of another host is outside."""
    if effect == LOCAL and ("host" in arguments or "context" in arguments):
        return arguments, CHANGES
    return arguments, effect


def read_wget(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """wget writes a file unless an option says otherwise."""
    arguments, effect = read_http(arguments, effect, context)
    if effect == READS and arguments.get("output") not in ("-", "/dev/null"):
        return arguments, LOCAL
    return arguments, READS if effect == LOCAL and arguments.get("output") == "-" else effect


def read_sqlite(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """sqlite3 changes a file of this machine; its dot commands can run programs."""
    arguments, effect = read_sql(arguments, effect, context)
    text = arguments.get("sql")
    if is_unknown_value(text) or (
        isinstance(text, str)
        and re.search(
            r"^\s*\.(?:shell|system|import|load|read|once|excel|www|output)|load_extension|edit\(",
            text,
            re.M,
        )
    ):
        return arguments | {"reads_only": False}, RUNS
    return arguments, effect


def read_ssh(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """ssh without a host does nothing; options can run commands on this side."""
    if arguments.get("version") is True or arguments.get("show_config") is True:
        return arguments, READS
    options = arguments.get("ssh_options")
    if is_unknown_value(options) or any(
        re.match(
            r"(?:proxycommand|localcommand|permitlocalcommand|knownhostscommand|include|pkcs11provider|securitykeyprovider)\b",
            text,
            re.IGNORECASE,
        )
        for text in _as_list(options)
    ):
        return arguments, RUNS
    host = arguments.get("host")
    if isinstance(host, str):
        if host.startswith("ssh://"):
            host = parse_host(host)
        user, sign, name = host.rpartition("@")
        arguments["host"] = name
        if sign:
            arguments["user"] = user
    return arguments, effect if host else READS


def read_output(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """A filter that writes to a file with an option."""
    if "runs" in arguments:
        return arguments, RUNS
    return arguments, LOCAL if "output" in arguments or arguments.get("in_place") else effect


def read_tar(arguments: _Arguments, effect: str, context: CommandContext) -> tuple[_Arguments, str]:
    """tar can run programs for what it reads."""
    runs = arguments.get("runs")
    if "runs" in arguments and runs not in (
        "gzip",
        "pigz",
        "zstd",
        "xz",
        "bzip2",
        "lz4",
        "zstd -d",
        "pigz -d",
        "unzstd",
    ):
        return arguments, RUNS
    if any(
        text.startswith(
            ("--to-c", "--checkpoint-a", "--use-c", "--info", "--rsh", "--rmt", "-I", "-F")
        )
        for text in arguments.get("options", [])
    ):
        return arguments, RUNS
    return arguments, effect


def read_find(
    arguments: _Arguments, effect: str, _context: CommandContext
) -> tuple[_Arguments, str]:
    """find can delete and write; the commands that it runs are parts of their own."""
    words = _as_list(arguments.get("words"))
    if "-delete" in words:
        return arguments | {"delete": True}, LOCAL
    if any(word.startswith("-fprint") or word == "-fls" for word in words):
        return arguments, LOCAL
    return arguments, effect


# Options by which programs that only read write or run something.
_GRAVER_WORDS: Final[dict[str, re.Pattern[str]]] = {
    "rg": re.compile(r"--pre(?:=.*)?|--hostname-bin.*|-z"),
    "ag": re.compile(r"--pager.*"),
    "man": re.compile(r"-P.*|--pager.*|-H.*|--html.*|-C.*|-p.*|--preprocessor.*"),
    "bat": re.compile(r"--pager.*"),
    "batcat": re.compile(r"--pager.*"),
    "less": re.compile(r"\+.*|-[oOkK].*|--lesskey.*|--log-file.*"),
    "more": re.compile(r"\+.*"),
    "hostname": re.compile(r"[^-].*|-F.*|-b.*|--file.*"),
    "date": re.compile(r"-s.*|--set.*|\d{8,}"),
    "tree": re.compile(r"-o.*"),
    "xxd": re.compile(r"-r.*|-i"),
    "xmllint": re.compile(r"--output.*|-o|--shell"),
    "ip": re.compile(r"(?:add|del|delete|set|change|replace|flush|append|up|down|exec|a|d|s)"),
    "ifconfig": re.compile(r"up|down|\d.*|add|del.*|netmask|hw"),
    "route": re.compile(r"add|del.*|flush|change"),
    "arp": re.compile(r"-[sdf].*"),
    "mount": re.compile(r"(?!-l$).+"),
    "journalctl": re.compile(
        r"--vacuum.*|--rotate|--flush|--sync|--relinquish.*|--setup-keys|--update-catalog"
    ),
    "dmesg": re.compile(r"-[cCDE].*|--clear|--read-clear|--console.*"),
    "history": re.compile(r"-[cdwasr].*"),
    "command": re.compile(r"(?!-v|-V).*"),
    "env": re.compile(r".*="),
    "printenv": re.compile(r"(?!)"),
    "file": re.compile(r"-C|--compile"),
    "iconv": re.compile(r"-o.*|--output.*"),
    "exiftool": re.compile(r"-\w+(?:[-+]?<?)=.*|-overwrite.*|-if.*|-config.*|-stay_open.*"),
    "locate": re.compile(r"(?!)"),
    "compgen": re.compile(r"-[CFW].*"),
    "mapfile": re.compile(r"-C.*"),
    "readarray": re.compile(r"-C.*"),
    "dc": re.compile(r"(?s).*!.*|-f.*|--file.*"),
    "ack": re.compile(r"--pager.*"),
    "split": re.compile(r"--fi.*"),
    "zip": re.compile(r"-\w*TT.*|--unz.*"),
    "install": re.compile(r"--strip-p.*"),
    "rename": re.compile(
        r"(?s).*(?:`|\b(?:system|exec|qx|open|eval|require|do|use)\b|/\w*e\w*\Z).*"
    ),
    "patch": re.compile(r"-\w*e|--ed"),
    "ffmpeg": re.compile(r"\w+://.*"),
}
_SECOND_WRITES: Final = frozenset({"uniq", "xxd", "pdftotext"})


def read_plain(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """Programs that only read, but for a few options."""
    words = arguments.get("words")
    graver = _GRAVER_WORDS.get(context.program)
    listed = _as_list(words) + list(arguments.get("options", []))
    if graver is not None and (is_unknown_value(words) or any(map(graver.fullmatch, listed))):
        runs = context.program in (
            "rg",
            "ag",
            "man",
            "bat",
            "batcat",
            "less",
            "more",
            "xmllint",
            "ip",
            "compgen",
            "mapfile",
            "readarray",
            "dc",
            "ack",
            "split",
            "zip",
            "install",
            "rename",
            "patch",
            "ffmpeg",
        )
        harmless = is_unknown_value(words) and not any(map(graver.fullmatch, listed))
        return arguments, LOCAL if harmless or not runs else RUNS
    if context.program == "dc" and context.stdin.exists and "!" in (context.stdin.text or "!"):
        return arguments, RUNS
    paths = [word for word in listed if not re.fullmatch(r"-.*|\d+", word)]
    if context.program in _SECOND_WRITES and len(paths) > 1:
        return arguments, LOCAL
    return arguments, effect


def read_cloud_words(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """gsutil and bq have no group before their verb."""
    if context.program in ("gsutil", "bq") and not is_unknown_value(arguments.get("words")):
        arguments["words"] = [context.program, *_as_list(arguments.get("words"))]
    return read_cloud(arguments, effect, context)


def read_installer(
    arguments: _Arguments, effect: str, context: CommandContext
) -> tuple[_Arguments, str]:
    """Tell package managers that publish or run; what they install runs on this machine."""
    words = _as_list(arguments.get("words"))
    if is_unknown_value(arguments.get("words")) and (not words or "$" in words[0]):
        return arguments, RUNS
    if words:
        arguments["action"], arguments["packages"] = words[0], words[1:]
        arguments.pop("words", None)
    if words and words[0] in (
        "push",
        "publish",
        "upload",
        "release",
        "yank",
        "owner",
        "signin",
        "run",
        "exec",
    ):
        return arguments, RUNS
    return arguments, effect


READERS: Final[dict[str, _Reader]] = {
    "api_call": read_api_call,
    "awk": read_awk,
    "cloud": read_cloud,
    "cloud_words": read_cloud_words,
    "code": read_code,
    "copy": read_copy,
    "docker": read_docker,
    "find": read_find,
    "git": read_git,
    "git_listing": read_git_listing,
    "http": read_http,
    "installer": read_installer,
    "kubectl": read_kubectl,
    "mongo": read_mongo,
    "output": read_output,
    "plain": read_plain,
    "redis": read_redis,
    "sed": read_sed,
    "sql": read_sql,
    "sqlite": read_sqlite,
    "ssh": read_ssh,
    "tar": read_tar,
    "targets": read_targets,
    "wget": read_wget,
}
