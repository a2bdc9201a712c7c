"""A field whose value names rows together with their kin: `chain:e_12` is that effect with all that hangs on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.expressions import Combinable

from inquiry.indexes import HAS_REFERENCE, HAS_RESOURCE
from inquiry.query.fields import NOTHING, Context, Field, Test
from inquiry.query.parts import effect_id
from inquiry.query.tree import Term
from ledger.models import Effect
from sessions.models import Project

BEGINNINGS: Final = 50  # effects with one external reference or resource, the newest
STEPS: Final = 10
MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Kin(Field):
    """Rows and what belongs to them. `kin` returns their ids, and a sentence about what it left out, "" for nothing."""

    kin: "Callable[[Project, str], tuple[list[UUID], str]] | None" = None
    called: str = ""

    kind: ClassVar[str] = "handle"

    def is_textual(self) -> bool:
        return False

    def takes(self) -> str:
        return self.called

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> Test:
        return Test(Q(), lambda _row: True)

    def _read(self, term: Term, context: Context) -> Test:
        assert self.kin is not None  # noqa: S101 - the registry's own tests make sure
        ids: list[UUID] = []
        for one in term.values:
            asked = (self.name, one.text, False)
            if asked not in context.names:
                found, left_out = self.kin(context.project, one.text)
                context.names[asked] = found
                nothing = f"“{one.text[:60]}” names nothing here; {self.name} takes {self.called}."
                context.notes += [left_out] if found and left_out else [] if found else [nothing]
            ids += context.names[asked]
        q = Q(pk__in=ids) if ids else NOTHING
        return Test(q, lambda row: row.pk in ids, indexed=True, walled=bool(ids))


def chain(project: Project, text: str) -> tuple[list[UUID], str]:
    """The effects that `text` names, with parents, children, what they undo and what undid them, step by step."""
    rows: QuerySet[Any] = Effect.objects.filter(project=project)
    meant = effect_id(project, text)
    called = rows.filter(HAS_REFERENCE, external_reference=text.strip()).order_by("-opened_position")
    aimed = rows.filter(HAS_RESOURCE, resource=text.strip()).order_by("-opened_position")  # what was done to it
    named = [] if meant is not None else [one.values_list("id", flat=True)[: BEGINNINGS + 1] for one in (called, aimed)]
    begun = [meant] if meant is not None else list(dict.fromkeys(one for part in named for one in part))
    cut = len(begun) > BEGINNINGS
    known: dict[UUID, None] = dict.fromkeys(begun[:BEGINNINGS])
    following = list(known)
    for _ in range(STEPS):
        if not following:
            break
        found: list[UUID | None] = []
        sessions = set()
        for parent, undoes, session in rows.filter(id__in=following).values_list(
            "parent_effect", "compensates", "session"
        ):
            found += [parent, undoes]
            sessions.add(session)
        found += rows.filter(compensates__in=following).order_by("opened_position").values_list("id", flat=True)[:MOST]
        # Children are looked for where an index leads: among the effects of the same session.
        children = rows.filter(session__in=sessions, parent_effect__in=following)
        found += children.order_by("opened_position").values_list("id", flat=True)[:MOST]
        new = [one for one in dict.fromkeys(found) if one is not None and one not in known]
        following = new[: MOST - len(known)]
        cut = cut or len(new) > len(following)
        known.update(dict.fromkeys(following))
    # What a report names may be of another project, and belongs to nothing here.
    own = list(rows.filter(id__in=list(known)).values_list("id", flat=True))
    cut = cut or bool(following)
    return own, f"The chain of “{text[:60]}” goes on; {len(own):,} effects of it are shown." if cut else ""
