"""Fields whose value selects related rows: `chain:e_12` is the effect with its whole chain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable

from accounts.models import Project
from investigation.query.fields.row_tests import NO_ROWS, CompileContext, RowTest
from investigation.query.fields.types import Field
from investigation.query.parser.ast import Term
from investigation.query.registry.common import find_effect_id
from ledger.models import Effect
from ledger.partial_indexes import HAS_REFERENCE, HAS_RESOURCE

MAX_CHAIN_STARTS: Final = 50  # Newest effects with one external reference or resource.
MAX_CHAIN_STEPS: Final = 10
MAX_CHAIN_EFFECTS: Final = 500


@dataclass(frozen=True, slots=True)
class RelatedRows(Field):
    """Rows and `load_related`: their ids, and a sentence about omitted rows or ""."""

    load_related: "Callable[[Project, str], tuple[list[UUID], str]] | None" = None
    called: str = ""

    kind: ClassVar[str] = "handle"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return self.called

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> RowTest:
        return RowTest(Q(), lambda _row: True)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        assert self.load_related is not None  # noqa: S101 - the registry's own tests make sure
        ids: list[UUID] = []
        for value in term.values:
            name_key = (self.name, value.text, False)
            if name_key not in context.names:
                related_ids, left_out = self.load_related(context.project, value.text)
                context.names[name_key] = related_ids
                not_found = f"“{value.text[:60]}” was not found. {self.name} takes {self.called}."
                context.notes.extend(
                    [left_out] if related_ids and left_out else [] if related_ids else [not_found]
                )
            ids += context.names[name_key]
        q = Q(pk__in=ids) if ids else NO_ROWS
        return RowTest(q, lambda row: row.pk in ids, indexed=True, in_project=bool(ids))


def load_chain(project: Project, text: str) -> tuple[list[UUID], str]:
    """Return the effects that `text` names with their parents, children and compensations."""
    rows: QuerySet[Any] = Effect.objects.filter(project=project)
    named_effect = find_effect_id(project, text)
    by_reference = rows.filter(HAS_REFERENCE, external_reference=text.strip()).order_by(
        "-opened_position"
    )
    by_resource = rows.filter(HAS_RESOURCE, resource=text.strip()).order_by("-opened_position")
    by_name = (
        []
        if named_effect is not None
        else [
            effect.values_list("id", flat=True)[: MAX_CHAIN_STARTS + 1]
            for effect in (by_reference, by_resource)
        ]
    )
    starting = (
        [named_effect]
        if named_effect is not None
        else list(dict.fromkeys(effect for part in by_name for effect in part))
    )
    is_truncated = len(starting) > MAX_CHAIN_STARTS
    chain_ids: dict[UUID, None] = dict.fromkeys(starting[:MAX_CHAIN_STARTS])
    following = list(chain_ids)
    for _ in range(MAX_CHAIN_STEPS):
        if not following:
            break
        related: list[UUID | None] = []
        sessions = set()
        for parent, undoes, session in rows.filter(id__in=following).values_list(
            "parent_effect", "compensates", "session"
        ):
            related += [parent, undoes]
            sessions.add(session)
        related += (
            rows.filter(compensates__in=following)
            .order_by("opened_position")
            .values_list("id", flat=True)[:MAX_CHAIN_EFFECTS]
        )
        # Only the same session's effects are searched for children: an index serves them.
        children = rows.filter(session__in=sessions, parent_effect__in=following)
        related += children.order_by("opened_position").values_list("id", flat=True)[
            :MAX_CHAIN_EFFECTS
        ]
        new_ids = [
            effect
            for effect in dict.fromkeys(related)
            if effect is not None and effect not in chain_ids
        ]
        following = new_ids[: MAX_CHAIN_EFFECTS - len(chain_ids)]
        is_truncated = is_truncated or len(new_ids) > len(following)
        chain_ids.update(dict.fromkeys(following))
    # An effect named in a report may belong to another project and is left out.
    project_ids = list(rows.filter(id__in=list(chain_ids)).values_list("id", flat=True))
    is_truncated = is_truncated or bool(following)
    return (
        project_ids,
        f"The chain of “{text[:60]}” is longer; {len(project_ids):,} effects are shown."
        if is_truncated
        else "",
    )
