"""Setting GATEBOOK_ANCHORS: where tree heads are published.

    anchors = "none" | anchor *( ";" anchor )       a line break separates as well
    anchor  = [ name "=" ] kind ":" address *( " " option "=" value )

docs/how-to/anchors.md describes kinds and options. Without the setting, a file and a git repository
next to the folder of the installation are used: another folder, which a restore does not replace.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from django.conf import settings

from proofs.anchors.file import find_file_faults, publish_to_file
from proofs.anchors.git import find_git_faults, publish_to_git
from proofs.anchors.published_head import AnchorTarget
from proofs.anchors.syslog import find_syslog_faults, publish_to_syslog
from proofs.anchors.webhook import find_webhook_faults, publish_to_webhook
from proofs.anchors.witness import find_witness_faults, publish_to_witness

MAX_ANCHORS: Final = 16
MAX_EVERY_S: Final = 86_400
NONE: Final = "none"
DEFAULT_BRANCH: Final = "tree-heads"
DEFAULT_GIT_EVERY_S: Final = 60  # a commit every 10 s would make millions a year
_ANCHOR: Final = re.compile(
    r"(?:(?P<name>[a-z0-9][a-z0-9-]{0,31})=)?(?P<kind>[a-z]+):(?P<address>\S+)(?P<options>.*)"
)


class AnchorKind(NamedTuple):
    """How a kind of anchor publishes, what is wrong with its settings, and its options."""

    publish: Callable[..., Iterator[str]]
    find_faults: Callable[[AnchorTarget], list[str]]
    options: frozenset[str] = frozenset()


KINDS: Final = {
    "file": AnchorKind(publish_to_file, find_file_faults),
    "git": AnchorKind(publish_to_git, find_git_faults, frozenset({"branch"})),
    "syslog": AnchorKind(publish_to_syslog, find_syslog_faults),
    "webhook": AnchorKind(publish_to_webhook, find_webhook_faults),
    "witness": AnchorKind(publish_to_witness, find_witness_faults, frozenset({"key"})),
}


class AnchorSettings(NamedTuple):
    """The anchors of the setting, and one sentence for each fault in it."""

    targets: list[AnchorTarget]
    faults: list[str]


def load_anchor_settings() -> AnchorSettings:
    """Return the anchors of this installation."""
    text: str = settings.GATEBOOK_ANCHORS
    return parse_anchors(text) if text.strip() else AnchorSettings(build_default_anchors(), [])


def build_default_anchors() -> list[AnchorTarget]:
    """Return a file and a git repository beside GATEBOOK_VAR, inside it where that is read-only."""
    var = Path(settings.VAR_DIR)
    folder = var.with_name(f"{var.name}-anchors")
    if not os.access(folder if folder.exists() else var.parent, os.W_OK):
        folder = var / "anchors"
    return [
        AnchorTarget("file", "file", str(folder / "heads"), makes_folder=True),
        AnchorTarget(
            "git",
            "git",
            str(folder / "heads.git"),
            branch=DEFAULT_BRANCH,
            every_s=DEFAULT_GIT_EVERY_S,
            makes_folder=True,
        ),
    ]


def parse_anchors(text: str) -> AnchorSettings:
    """Parse the setting; a fault names the anchor by its beginning, because it may hold secrets."""
    if text.strip() == NONE:
        return AnchorSettings([], [])
    targets: list[AnchorTarget] = []
    faults: list[str] = []
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        target, reasons = _parse_anchor(part)
        if target is not None and any(target.name == other.name for other in targets):
            reasons.append(
                f"Two anchors have the name {target.name}. Give one another: "
                f"{target.name}-2={target.kind}:…"
            )
        begin = part.partition(":")[0][:40]
        faults += [f"GATEBOOK_ANCHORS, anchor {begin}: {reason}." for reason in reasons]
        targets += [target] if target is not None and not reasons else []
    if len(targets) > MAX_ANCHORS:
        faults.append(f"GATEBOOK_ANCHORS names {len(targets)} anchors. Keep {MAX_ANCHORS}.")
    return AnchorSettings(targets[:MAX_ANCHORS], faults)


def _parse_anchor(part: str) -> tuple[AnchorTarget | None, list[str]]:
    match = _ANCHOR.fullmatch(part)
    if match is None:
        return None, [
            "It is not of the form [name=]kind:address [option=value …], as "
            "file:/srv/anchors/heads. A name has lower-case letters, digits and '-'"
        ]
    name, kind = match["name"] or match["kind"], match["kind"]
    if kind not in KINDS:
        return None, [f"The kind {kind} does not exist. Use one of {', '.join(KINDS)}"]
    options, reasons = _parse_options(kind, match["options"])
    every = options.get("every", "0")
    every_s = int(every) if every.isascii() and every.isdigit() and len(every) < 6 else -1
    if not 0 <= every_s <= MAX_EVERY_S:
        reasons.append(f"every={every} is no number of seconds from 0 to {MAX_EVERY_S}")
    target = AnchorTarget(
        name,
        kind,
        match["address"],
        branch=options.get("branch", DEFAULT_BRANCH),
        key=options.get("key", ""),
        every_s=max(every_s, 0),
    )
    return target, [*reasons, *(reason.rstrip(".") for reason in KINDS[kind].find_faults(target))]


def _parse_options(kind: str, text: str) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    reasons = []
    allowed = sorted({"every", *KINDS[kind].options})
    for word in text.split():
        option, equals, value = word.partition("=")
        if option not in allowed or not equals or not value:
            reasons.append(
                f"{word[:40]} is no option of {kind}. Write "
                f"{' or '.join(f'{name}=…' for name in allowed)}"
            )
        elif option in options:
            reasons.append(f"{option}= is there twice. Keep one")
        else:
            options[option] = value
    return options, reasons
