"""Find the names in a plan: hosts, mail addresses, accounts, repositories, clusters, data stores.

Names are found by the name of an argument, at any depth, and by the shape of a value: URL, mail
address, DSN, git remote, ARN, options of a command. Pure, bounded: at most MAX_PLAN_NAMES names
and MAX_READ_CHARACTERS characters of a plan, about 20 µs for a short one.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_PLAN_NAMES: Final = 64
MAX_NAME_LENGTH: Final = 200  # longer values are no names
MAX_READ_CHARACTERS: Final = 32_768  # characters of values that are searched for shapes
MAX_TEXT_CHARACTERS: Final = 4_096  # … of one text that people or programs read
MAX_DEPTH: Final = 12

# Kind -> its word on pages.
NAME_KINDS: Final = {
    "mail_address": "address",
    "mail_domain": "domain",
    "host": "host",
    "domain": "domain",
    "account": "account",
    "repository": "repository",
    "cluster": "cluster",
    "bucket": "bucket",
    "database": "database",
}
# Argument, in lower case without signs -> kind of its value.
_KIND_OF_ARGUMENT: Final = {
    **dict.fromkeys(
        (
            *("account", "accountid", "accountnumber", "accountno", "accountname", "iban"),
            *("awsaccount", "awsaccountid", "billingaccount", "billingaccountid"),
            *("bankaccount", "fromaccount", "toaccount", "destinationaccount", "sourceaccount"),
            *("payee", "payeeid", "beneficiary", "beneficiaryid", "creditor", "debtor", "wallet"),
            *("subscription", "subscriptionid", "tenant", "tenantid", "project", "projectid"),
            *("gcpproject", "gcpprojectid", "orgid", "organizationid", "merchantid"),
        ),
        "account",
    ),
    **dict.fromkeys(
        ("repository", "repo", "reponame", "repositoryname", "repourl", "remote", "remoteurl"),
        "repository",
    ),
    **dict.fromkeys(
        ("cluster", "clustername", "context", "kubecontext", "kubectlcontext", "clusterid"),
        "cluster",
    ),
    **dict.fromkeys(("bucket", "bucketname", "s3bucket", "gcsbucket"), "bucket"),
    **dict.fromkeys(("database", "dbname", "databasename", "db"), "database"),
    **dict.fromkeys(
        ("host", "hostname", "server", "domain", "endpoint", "baseurl", "url", "uri", "website"),
        "host",
    ),
}
_ACCOUNT_WORDS: Final = ("project", "subscription", "tenant", "wallet", "merchant", "payee")
_RECIPIENTS: Final = frozenset(
    {"to", "cc", "bcc", "recipient", "recipients", "email", "emails", "mail", "mailto", "address"}
    | {"emailaddress", "toaddress", "toaddresses", "toemail", "replyto", "invitee", "invitees"}
    | {"attendees", "sendto", "customeremail", "contactemail", "member", "members", "grantee"}
    | {"principal", "invite", "invites", "collaborator", "collaborators", "useremail"}
)
_REFS: Final = frozenset(
    {"ref", "refs", "branch", "basebranch", "targetbranch", "sourcebranch", "tag", "refspec"}
    | {"head", "base", "newbranch", "branchname"}
)
_PATHS: Final = frozenset(
    {"path", "paths", "file", "files", "filepath", "filename", "attachment", "attachments", "dir"}
    | {"directory", "folder", "destination", "dest", "target", "source", "outputpath", "cwd"}
)
_COMMANDS: Final = frozenset({"command", "cmd", "commands", "args", "argv", "shell"})
# Values that people read or that a program stores: what they mention is not what the call uses.
_TEXTS: Final = frozenset(
    {"body", "text", "content", "contents", "message", "html", "markdown", "subject", "title"}
    | {"newstring", "oldstring", "newstr", "oldstr", "filetext", "newtext", "patch", "diff"}
    | {"comment", "note", "notes", "summary", "prompt", "question", "answer", "changes", "edits"}
    | {"data", "code", "script", "query", "sql", "pattern", "input", "output", "result"}
    | {"description", "why", "reason", "thought", "explanation"}
)
_CONTEXT_ARGUMENTS: Final = frozenset({"context", "db", "server", "remote", "domain", "project"})

# With accents of their own, hidden signs and other hyphens: a host with them is no ordinary one.
_LABEL_LETTER: Final = r"[\w\u0300-\u036f\u200b-\u200d\u2060\u00ad\ufeff\u2010-\u2012\u2212-]"
_LABEL: Final = rf"[^\W_](?:{_LABEL_LETTER}{{0,61}}[^\W_])?"
_HOST: Final = rf"(?:{_LABEL}\.){{1,8}}(?:[^\W\d_]{{2,24}}|xn--[a-z0-9-]{{2,59}})"
_MAIL_SHAPE: Final = re.compile(
    rf"(?<![\w.+%/:@-])([\w.+%'-]{{1,64}})@({_HOST})(?![\w@:-]|\.\w)", re.UNICODE
)
_MAX_SCHEME_CHARACTERS: Final = 21
# scheme://user:password@host:port/path. A slash that only looks like one belongs to the host.
_URL_SHAPE: Final = re.compile(
    r"\b([a-z][a-z0-9+.-]{1,20})://(?:[^\s/@\"'<>]{1,120}@)?([^\s/:?#@\"'<>\\,;|(){}\[\]`$*]{1,253})"
    r"(?::(\d{1,5}))?(/[^\s\"'<>\\|(){}\[\]`$*]{0,300})?",
    re.IGNORECASE,
)
_REMOTE_SHAPE: Final = re.compile(
    rf"(?<![\w.@/])(?:ssh://)?git@({_HOST})[:/]([\w./~-]{{2,150}}?)(?:\.git)?/?(?![\w./~-])"
)
_ARN_SHAPE: Final = re.compile(r"\barn:aws[\w-]*:[\w-]*:[\w-]*:(\d{12}):")
_IBAN_SHAPE: Final = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,4})?\b")
_CLUSTER_OPTION: Final = re.compile(
    r"(?<!\S)(?:--kube-context|--kubecontext|--context|--cluster|use-context|get-credentials)"
    r"[= ]([\w.:/@-]{2,120})"
)
_HOST_OPTION: Final = re.compile(
    rf"(?<!\S)(?:-h|--host|--hostname|--server)[= ]({_HOST})(?![\w.@-])"
)
_BUCKET_SCHEMES: Final = frozenset({"s3", "gs", "s3a", "s3n"})
_DATABASE_SCHEMES: Final = (
    *("postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis", "mssql", "clickhouse"),
    *("oracle", "cockroachdb", "snowflake", "redshift"),
)
_CODE_HOSTS: Final = re.compile(r"github|gitlab|bitbucket|gitea|codeberg|sourcehut", re.IGNORECASE)
_NAME_SHAPE: Final = re.compile(r"[^\s\"'`<>|;{}()\[\]$]{1,200}")
_USER_LIKE_HOST: Final = re.compile(
    rf"\bhttps?://((?:{_LABEL}\.){{1,8}}(?:com|net|org|io|dev|app|co|ai|eu|gov|edu))"
    rf"(?::[^\s/@]{{0,80}})?@({_HOST})",
    re.IGNORECASE,
)
# One word of a name, package or record, no sentence; of any script.
_IDENTIFIER: Final = re.compile(r"[\w@.:/+\u200b-\u200d\u2060\u00ad\ufeff-]{2,120}")
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104
_SIGNS: Final = re.compile(r"[^a-z0-9]")
_DIGITS_ONLY: Final = re.compile(r"[\d.]+")
# Second labels under which countries register names: example.co.uk.
_SECOND_LABELS: Final = frozenset({"co", "com", "org", "net", "gov", "ac", "edu", "or", "ne"})


@dataclass(frozen=True, slots=True)
class PlanName:
    """One name of a plan. `value` is the name as sent, `path` the dot path of its argument.

    `is_recipient`: data go there, by mail or to a database.
    `is_mentioned`: only a text of the plan contains it, so it is compared and never counted.
    """

    kind: str
    value: str
    path: str
    is_recipient: bool = False
    is_mentioned: bool = False
    # The name as it is compared: without case, host names as they are read.
    folded: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folded", fold_name(self.kind, self.value))

    @property
    def word(self) -> str:
        """Its word on pages: the kind, or what the argument calls an account."""
        argument = self.path.rpartition(".")[2].lower()
        if self.kind == "account":
            return next((word for word in _ACCOUNT_WORDS if word in argument), "account")
        return NAME_KINDS[self.kind]


@dataclass(frozen=True, slots=True)
class NamedText:
    """A ref, path, command or other name of a plan that is not counted, only read."""

    what: str  # its word on pages: ref, path, command, environment, resource
    value: str
    path: str


def fold_name(kind: str, value: str) -> str:
    """Return the form in which names of a kind are compared and counted."""
    if kind in ("mail_domain", "host", "domain"):
        return decode_host(value.rstrip("."))
    if kind == "mail_address":
        local, _, host = value.rpartition("@")
        return f"{local.lower()}@{decode_host(host)}"
    if kind == "account":
        plain = value.replace(" ", "").lower()
        return plain if any(map(str.isalpha, plain)) else plain.replace("-", "")
    return value.strip("/").removesuffix(".git").lower()


def decode_host(host: str) -> str:
    """Return a host in lower case with its `xn--` labels as readers see them."""
    lowered = host.lower()
    if "xn--" not in lowered:
        return lowered
    return ".".join(map(_decode_label, lowered.split(".")))


def encode_host(host: str) -> str:
    """Return a host as the network writes it, with `xn--` labels; unchanged if it cannot be."""
    if host.isascii():
        return host
    try:
        return ".".join(
            label if label.isascii() else "xn--" + label.encode("punycode").decode()
            for label in host.split(".")
        )
    except UnicodeError:
        return host


def find_registered_domain(host: str) -> str:
    """Return the part of a host that somebody registered: northwind.co.uk; "" for an address."""
    labels = host.split(".")
    if len(labels) < 2 or _DIGITS_ONLY.fullmatch(host) or host in _LOCAL_HOSTS:
        return ""
    size = 3 if len(labels[-1]) == 2 and labels[-2] in _SECOND_LABELS else 2
    return ".".join(labels[-size:])


def find_plan_names(arguments: Any, repository: str = "") -> tuple[PlanName, ...]:
    """Return the distinct names of a plan, at most MAX_PLAN_NAMES, those of the target first."""
    names: dict[tuple[str, str, bool], PlanName] = {}
    for name in _iterate_names(arguments, repository):
        if len(name.value) > MAX_NAME_LENGTH:
            continue
        key = (name.kind, name.folded, name.is_mentioned)
        names.setdefault(key, name)
        if len(names) >= MAX_PLAN_NAMES:
            break
    return tuple(
        name
        for (kind, folded, mentioned), name in names.items()
        if not (mentioned and (kind, folded, False) in names)
    )


def find_named_texts(arguments: Any, target: Mapping[str, str]) -> tuple[NamedText, ...]:
    """Return refs, paths and commands with a letter beyond ASCII, at most MAX_PLAN_NAMES."""
    texts = [
        NamedText(word, value, f"target.{word}")
        for word, value in target.items()
        if value and not value.isascii()
    ]
    for path, argument, value in _iterate_values(arguments, "arguments", "", 0):
        if not isinstance(value, str) or value.isascii() or len(value) > 4096:
            continue
        word = _find_text_word(argument)
        if not word:
            word = NAME_KINDS.get(_KIND_OF_ARGUMENT.get(_plain(argument), ""), "")
        if not word and _plain(argument) not in _TEXTS and _IDENTIFIER.fullmatch(value):
            word = "value"
        if word:
            texts.append(NamedText(word, value, path))
        if len(texts) >= MAX_PLAN_NAMES:
            break
    return tuple(texts[:MAX_PLAN_NAMES])


def find_false_hosts(arguments: Any) -> Iterator[tuple[str, str, str]]:
    """Yield dot path, the host that a URL shows first as its user name, and its real host."""
    left = MAX_READ_CHARACTERS
    for path, _argument, value in _iterate_values(arguments, "arguments", "", 0):
        if left <= 0:
            return
        if isinstance(value, str) and "://" in value and "@" in value:
            text = value[: min(left, MAX_TEXT_CHARACTERS)]
            left -= len(text)
            for match in _USER_LIKE_HOST.finditer(text):
                if match[1].lower() != match[2].lower():
                    yield path, match[1], match[2]


def _find_text_word(argument: str) -> str:
    plain = _plain(argument)
    if plain in _REFS:
        return "ref"
    if plain in _PATHS:
        return "path"
    if plain in _RECIPIENTS:
        return "address"
    return "command" if plain in _COMMANDS else ""


def _iterate_names(arguments: Any, repository: str) -> Iterator[PlanName]:
    if repository:
        yield from _split_repository(repository, "target.repository")
    left = MAX_READ_CHARACTERS
    for path, argument, value in _iterate_values(arguments, "arguments", "", 0):
        plain = _plain(argument)
        kind = _KIND_OF_ARGUMENT.get(plain, "")
        if not kind and plain.endswith("iban"):
            kind = "account"
        if isinstance(value, int) and not isinstance(value, bool):
            if kind == "account":
                yield PlanName(kind, str(value), path)
            continue
        if not isinstance(value, str) or left <= 0:
            continue
        text = value[: min(left, MAX_TEXT_CHARACTERS)] if plain in _TEXTS else value[:left]
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        left -= len(text)
        if kind and len(text) <= MAX_NAME_LENGTH:
            yield from _read_named_value(kind, plain, text.strip(), path)
        yield from _read_shapes(text, plain, path)


def _read_named_value(kind: str, plain: str, value: str, path: str) -> Iterator[PlanName]:
    """Yield the name that an argument holds by its own name."""
    if kind == "account" and _IBAN_SHAPE.fullmatch(value):
        yield PlanName("account", value, path)
        return
    if "://" in value or value.startswith("git@") or not _NAME_SHAPE.fullmatch(value):
        return  # the shape of the value says more
    if kind == "host":
        host = value.split("/")[0].rsplit(":", 1)[0] if value.count(":") < 2 else value
        if re.fullmatch(_HOST, host):
            yield from _split_host(host, path)
    elif kind == "repository":
        if plain not in ("remote", "remoteurl") or "/" in value:
            yield from _split_repository(value, path)
    elif any(map(str.isalpha if plain in _CONTEXT_ARGUMENTS else str.isalnum, value)):
        yield PlanName(kind, value, path)


def _read_shapes(text: str, plain: str, path: str) -> Iterator[PlanName]:
    """Yield the names in a value that their own shape shows."""
    mentioned = plain in _TEXTS or (plain not in _COMMANDS and "\n" in text)
    if "@" in text:
        for match in _REMOTE_SHAPE.finditer(text):
            yield from _split_host(match[1], path, mentioned=mentioned)
            yield PlanName("repository", match[2], path, is_mentioned=mentioned)
        is_recipient = plain in _RECIPIENTS
        for match in _MAIL_SHAPE.finditer(text):
            if match[1] == "git":
                continue
            yield PlanName("mail_domain", match[2], path, is_recipient, mentioned)
            yield from _split_domain(match[2], path, is_recipient, mentioned)
            yield PlanName("mail_address", match[0], path, is_recipient, mentioned)
    if "://" in text:
        for match in _iterate_urls(text):
            yield from _read_url(match, path, mentioned)
    if "arn:aws" in text:
        for match in _ARN_SHAPE.finditer(text):
            yield PlanName("account", match[1], path, is_mentioned=mentioned)
    if plain in _COMMANDS:
        for match in _CLUSTER_OPTION.finditer(text):
            yield PlanName("cluster", match[1], path)
        for match in _HOST_OPTION.finditer(text):
            yield from _split_host(match[1], path)


def _iterate_urls(text: str) -> Iterator[re.Match[str]]:
    """Yield what `_URL_SHAPE.finditer` does; searches only where a scheme ends."""
    end, at = 0, text.find("://")
    while at >= 0:
        match = _URL_SHAPE.search(text, max(end, at - _MAX_SCHEME_CHARACTERS))
        if match is None:
            return
        yield match
        end = match.end()
        at = text.find("://", end)


def _read_url(match: re.Match[str], path: str, mentioned: bool) -> Iterator[PlanName]:
    scheme, host, rest = match[1].lower(), match[2].strip("."), match[4] or ""
    if scheme in _BUCKET_SCHEMES:
        yield PlanName("bucket", host, path, is_mentioned=mentioned)
        return
    if scheme == "file":
        return
    is_database = scheme.split("+")[0].startswith(_DATABASE_SCHEMES)
    yield from _split_host(host, path, recipient=is_database, mentioned=mentioned)
    if is_database:
        database = rest.strip("/").split("?")[0]
        if database and "/" not in database:
            yield PlanName("database", database, path, is_mentioned=mentioned)
    elif rest.endswith(".git") or _CODE_HOSTS.search(host):
        parts = [part for part in rest.split("?")[0].split("#")[0].split("/") if part]
        if len(parts) >= 2 and not host.lower().startswith(("api.", "raw.", "docs.")):
            name = "/".join(parts if rest.endswith(".git") else parts[:2])
            yield PlanName("repository", name.removesuffix(".git"), path, is_mentioned=mentioned)


def _split_repository(value: str, path: str) -> Iterator[PlanName]:
    """Yield a repository, and its host if the name begins with one: github.com/acme/web."""
    if "://" in value:
        for match in _URL_SHAPE.finditer(value):
            yield from _read_url(match, path, mentioned=False)
        return
    head, _, rest = value.partition("/")
    if "/" in rest and re.fullmatch(_HOST, head):
        yield from _split_host(head, path)
        value = rest
    if value and not value.startswith((".", "/", "~")):
        yield PlanName("repository", value, path)


def _split_host(
    host: str, path: str, *, recipient: bool = False, mentioned: bool = False
) -> Iterator[PlanName]:
    if host.lower() in _LOCAL_HOSTS or "." not in host or _DIGITS_ONLY.fullmatch(host):
        return
    yield PlanName("host", host, path, is_mentioned=mentioned)
    yield from _split_domain(host, path, recipient, mentioned)


def _split_domain(host: str, path: str, recipient: bool, mentioned: bool) -> Iterator[PlanName]:
    domain = find_registered_domain(host.rstrip("."))
    if domain:
        yield PlanName("domain", domain, path, recipient, mentioned)


def _iterate_values(
    value: Any, path: str, argument: str, depth: int
) -> Iterator[tuple[str, str, Any]]:
    """Yield dot path, name of the innermost named argument and value of each scalar."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _iterate_values(inner, f"{path}.{name}", name, depth + 1)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _iterate_values(inner, f"{path}.{number}", argument, depth + 1)
    else:
        yield path, argument, value


def _plain(argument: str) -> str:
    return _SIGNS.sub("", argument.lower())


def _decode_label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label
