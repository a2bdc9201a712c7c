"""Write a session bundle to a zip file: the same bytes for the same content and cut.

Members have a fixed order and time; SHA256SUMS comes last with the hash of every other member. Only
one batch of rows is in memory.
"""

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
from django.db.models import OuterRef, Subquery

from db.errors import ChangeRefused
from investigation.bundles import collect, diffs, readme
from investigation.bundles.collect import ExportCut, SessionExport, load_cut
from investigation.bundles.schema import bundle_schema
from journal.models import Body
from proofs import proof_document
from proofs.models import TreeHead
from proofs.verifier import gatebook_verify
from sessions import artifacts
from sessions.models import Artifact, Session

NAMES: Final = ("README.md", "bundle.json", "schema.json", "SHA256SUMS")
# In bundles of a Gatebook that has sealed entries.
PROOF_NAMES: Final = ("proof.json", "gatebook_verify.py")
_WHEN: Final = (1980, 1, 1, 0, 0, 0)  # of every member: the earliest time that zip supports
_LEVEL: Final = 6
_CHUNK: Final = 1 << 20
_TRIES: Final = 5
_PLANS: Final = 50  # bodies in memory at once
_OPTIONS: Final = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


class _HashingZip:
    """A zip file that records the hash of every member in order."""

    def __init__(self, file: zipfile.ZipFile) -> None:
        self._file = file
        self.sums: list[tuple[str, str]] = []

    @contextmanager
    def member(self, name: str) -> Iterator[_Sink]:
        info = zipfile.ZipInfo(name, _WHEN)
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        info.create_system = 3
        digest = hashlib.sha256()
        with self._file.open(info, "w", force_zip64=True) as stream:

            class Sink:
                @staticmethod
                def write(data: bytes, /) -> None:
                    digest.update(data)
                    stream.write(data)

            yield Sink
        self.sums.append((digest.hexdigest(), name))

    def lines(self, name: str, rows: Iterable[str]) -> None:
        with self.member(name) as sink:
            for line in rows:
                sink.write(f"{line}\n".encode("utf-8", "replace"))


def write_bundle(session: Session, target: Path) -> ExportCut:
    """Write the bundle of `session` to `target` and return its cut. Raises ChangeRefused.

    If the session changes during the export, it is exported again: rows and journal must match.
    """
    for _ in range(_TRIES):
        current = Session.objects.select_related(
            "project", "agent", "repository", *collect.LINKS
        ).get(id=session.id)
        cut = load_cut(current)
        with zipfile.ZipFile(target, "w", compresslevel=_LEVEL) as file:
            _write_members(_HashingZip(file), SessionExport(current, cut))
        if load_cut(current) == cut:
            return cut
    target.unlink()
    raise ChangeRefused(
        f"{session} changes faster than it can be exported. Try again when its agent is idle."
    )


def _write_members(file: _HashingZip, collected: SessionExport) -> None:
    head = collected.head()
    tree_head = proof_document.load_covering_head(collected.find_last_needed_position())
    changed = list(_plans_with_diffs(collected))
    enclosed = _stored_artifacts(collected.session)
    counts = (len(changed), len(enclosed))
    file.lines("README.md", _readme_lines(collected, head, *counts, tree_head))
    with file.member("bundle.json") as sink:
        _write_document(sink, head, collected)
    with file.member("schema.json") as sink:
        sink.write(orjson.dumps(bundle_schema(), option=_OPTIONS | orjson.OPT_INDENT_2))
    if tree_head is not None:
        with file.member("proof.json") as sink:
            _write_proofs(sink, tree_head, collected)
        with file.member("gatebook_verify.py") as sink:
            sink.write(Path(gatebook_verify.__file__).read_bytes())
    for handle, position in changed:
        with file.member(f"diffs/{handle}.diff") as sink:
            sink.write(diffs.diff_of_plan(_load_text(position)).encode("utf-8", "replace"))
    for row in enclosed:
        with (
            file.member(f"artifacts/{row.sha256}") as sink,
            artifacts.artifact_path(row.project_id, row.sha256).open("rb") as b,
        ):
            while chunk := b.read(_CHUNK):
                sink.write(chunk)
    file.lines("SHA256SUMS", [f"{digest}  {name}" for digest, name in file.sums])


def _write_document(sink: _Sink, head: dict[str, Any], collected: SessionExport) -> None:
    """Write bundle.json with one element per line, so that two bundles can be diffed."""
    sink.write(b"{")
    for name, value in head.items():
        sink.write(
            orjson.dumps(name) + b":" + orjson.dumps(value, option=orjson.OPT_SORT_KEYS) + b",\n"
        )
    for number, (name, rows) in enumerate(collected.parts()):
        sink.write((b",\n" if number else b"") + orjson.dumps(name) + b":[")
        first = True
        for row in rows():
            sink.write(
                (b"\n" if first else b",\n") + orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
            )
            first = False
        sink.write(b"]")
    sink.write(b"}\n")


def _write_proofs(sink: _Sink, tree_head: TreeHead, collected: SessionExport) -> None:
    """Write proof.json with one entry per line."""
    sink.write(b"{")
    for name, value in proof_document.describe_head(tree_head).items():
        sink.write(orjson.dumps(name) + b":" + orjson.dumps(value) + b",\n")
    erased: list[dict[str, Any]] = []
    sink.write(b'"entries":[')
    first = True
    for row in collected.proofs(tree_head):
        if "erased" in row:
            erased.append(row["erased"])
            continue
        sink.write((b"\n" if first else b",\n") + orjson.dumps(row))
        first = False
    sink.write(b'],\n"erased":' + orjson.dumps(erased) + b"}\n")


def _readme_lines(
    collected: SessionExport,
    head: dict[str, Any],
    changed: int,
    enclosed: int,
    tree_head: TreeHead | None,
) -> Iterator[str]:
    yield from readme.head_lines(head, collected.effects_of().count())
    doubts = readme.UncertainEffects()
    yield from readme.effect_lines(collected.effects(), doubts)
    gates = list(collected.gates())
    of = {str(line["effect"]) for line in gates}
    held = collected.effects_of().filter(id__in=of).values_list("id", "opened_position")
    handles = {str(identity): f"e_{position}" for identity, position in held}
    yield from readme.gate_lines(
        gates,
        handles,
        _load_reasons([vote["position"] for line in gates for vote in line["votes"]]),
    )
    exempted = list(collected.exemptions())
    yield from readme.exemption_lines(
        exempted, _load_reasons([line["opened_position"] for line in exempted])
    )
    yield from readme.uncertain_lines(doubts)
    if tree_head is not None:
        yield from readme.proof_lines(tree_head)
    yield from readme.tail_lines(head, changed, enclosed)


def _load_reasons(positions: list[int]) -> dict[int, str | None]:
    """Load the reasons of people by entry position; erased reasons are absent."""
    bodies = Body.objects.filter(entry_id__in=positions).values_list("entry_id", "text")
    return {position: orjson.loads(text).get("reason") for position, text in bodies}


def _plans_with_diffs(collected: SessionExport) -> Iterator[tuple[str, int]]:
    """Yield handle and plan position of every effect whose arguments change files."""
    plan = Body.objects.filter(entry_id=OuterRef("plan_position")).values("text")
    planned = collected.effects_of().annotate(plan=Subquery(plan)).filter(plan__isnull=False)
    rows = planned.values_list("opened_position", "plan_position", "plan").iterator(
        chunk_size=_PLANS
    )
    for handle, position, text in rows:
        if diffs.diff_of_plan(text):
            yield f"e_{handle}", position


def _load_text(position: int) -> str:
    return Body.objects.filter(entry_id=position).values_list("text", flat=True).first() or ""


def _stored_artifacts(session: Session) -> list[Artifact]:
    """List the artifacts with stored bytes, one per hash, ordered by hash."""
    rows = Artifact.objects.filter(session=session, stored_at_us__isnull=False).order_by(
        "sha256", "size"
    )
    return list({entry.sha256: entry for entry in rows if collect.is_enclosed(entry)}.values())
