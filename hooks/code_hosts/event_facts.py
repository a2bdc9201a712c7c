"""Facts of a code host's event, the same for every host. Pure; no Django.

`github_payloads.py` and `gitlab_payloads.py` read them from payloads. A payload is text of another
system: each value is checked for its type, and a missing one stays empty.
"""

import hashlib
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self
from urllib.parse import urlsplit

MAX_TEXT: Final = 300
_SHA: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NO_SHA: Final = re.compile(r"0+")
_SCP_URL: Final = re.compile(r"[\w.-]+@([\w.-]+):(?!/)(.+)")


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What one event says. References are names of the same thing that an agent may report.

    `ref` is a full name such as `refs/heads/main`. `text_digest` is that of a comment's or a
    request's text. `is_action` is false for consequences of another action, such as a check.
    `emails` hold what identifies the sender besides `sender`, as given; they are not stored.
    """

    kind: str
    action: str = ""
    site: str = ""  # host name, such as github.com
    repository: str = ""  # owner/name, in lower case
    ref: str = ""
    base_ref: str = ""
    sha: str = ""
    before: str = ""
    created: bool = False
    deleted: bool = False
    forced: bool | None = None
    number: int | None = None
    comment_id: str = ""
    text_digest: str = ""
    environment: str = ""
    workflow: str = ""
    conclusion: str = ""
    url: str = ""
    references: tuple[str, ...] = ()
    sender: str = ""
    emails: tuple[str, ...] = field(default=(), compare=False)
    is_action: bool = False
    occurred_us: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as stored, without empty ones and without addresses of people."""
        values = asdict(replace(self, emails=()))
        return {name: value for name, value in values.items() if value not in ("", None, (), False)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the facts from their stored form."""
        stored = {name: value for name, value in values.items() if name in cls.__slots__}
        return cls(**{**stored, "references": tuple(stored.get("references", ()))})

    @property
    def subject(self) -> str:
        """What the event is about: two events of one action share it."""
        return self.comment_id or (f"#{self.number}" if self.number else self.sha or self.ref)


def read_string(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a text without NUL, cut at `limit`; empty for every other type."""
    return value.replace("\0", "")[:limit] if isinstance(value, str) else ""


def read_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; empty for every other type."""
    return value if isinstance(value, dict) else {}


def read_number(value: Any) -> int | None:
    """Return a number from 0 to 2^63-1, or None."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 2**63 else None


def read_id(value: Any) -> str:
    """Return an id as text: hosts send numbers or texts."""
    number = read_number(value)
    return str(number) if number is not None else read_string(value, 100)


def read_sha(value: Any) -> str:
    """Return a commit's name in lower case; empty for none, such as that of a deleted ref."""
    text = read_string(value).lower()
    return text if _SHA.fullmatch(text) and not _NO_SHA.fullmatch(text) else ""


def read_time_us(value: Any) -> int | None:
    """Return a time in microseconds from seconds or ISO 8601 text; None if unreadable."""
    seconds = read_number(value)
    if seconds is not None:
        return seconds * 1_000_000 if 0 < seconds < 2**40 else None
    text = read_string(value, 40).replace(" UTC", "+00:00").replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(text)
        return int(moment.timestamp() * 1_000_000) if moment.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def read_site(url: Any) -> str:
    """Return the host name of a URL in lower case, empty if there is none."""
    try:
        return (urlsplit(read_string(url, 1000)).hostname or "").lower()
    except ValueError:
        return ""


def digest_written_text(text: Any) -> str:
    """Return a digest of a text that ignores line ends and surrounding blanks; empty for none."""
    if not isinstance(text, str) or not text.strip():
        return ""
    plain = text.replace("\r\n", "\n").strip()
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()


def split_repository(name: str) -> tuple[str, str]:
    """Return (site, path) of a repository's name or address, in lower case.

    The site is empty where the name has none: `acme/shop`, `github.com/acme/shop`,
    `git@github.com:acme/shop.git` and `https://github.com/acme/shop` are one repository.
    """
    text = name.strip().lower()
    scp = _SCP_URL.fullmatch(text)
    if scp is not None:
        site, path = scp[1], scp[2]
    elif "://" in text:
        try:
            parts = urlsplit(text)
            site, path = parts.hostname or "", parts.path
        except ValueError:
            return "", ""
    else:
        first, slash, rest = text.partition("/")
        has_site = bool(slash) and "/" in rest and ("." in first or first == "localhost")
        site, path = (first, rest) if has_site else ("", text)
    return site, path.strip("/").removesuffix(".git")
