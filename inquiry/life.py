"""The life line of an effect: the stages that it has been through, as its page draws them."""

from dataclasses import dataclass

from inquiry.sentences import is_of_a_person_alone
from inquiry.shown import shown_state
from inquiry.timeline import DAY_US
from ledger.models import Attempt, Effect


@dataclass(slots=True)
class Stage:
    """A step of the life line: a word of the state table or of leave, when, and whether the end is open.

    `form` tells the time as `moment` takes it: the day is named only where it is another than at the first step.
    """

    word: str
    looks_like: str  # a shown state, for shape and colour
    us: int | None
    open: bool = False
    form: str = ""


def stages(effect: Effect, tried: list[Attempt], now_us: int) -> list[Stage]:
    """The stages that an effect has been through, by the told times of the attempt that is the last."""
    found = []
    if effect.planned_mark:
        found.append(Stage("planned", "planned", effect.planned_at_us))
    if effect.leave != "held":
        waits = effect.leave == "pending"
        looks = "awaiting" if waits else "failed" if effect.leave in ("refused", "bypassed") else "decided"
        found.append(Stage(f"leave {effect.leave}", looks, None, open=waits))
    last = tried[-1] if tried else None
    if last is not None:
        if last.dispatched_mark:
            number = f" again, attempt {last.number}" if last.number > 1 else ""
            found.append(Stage(f"dispatched{number}", "dispatched", last.dispatched_at_us))
        if last.acknowledged_mark and is_of_a_person_alone(effect, last):
            found.append(Stage("acknowledged: unknown", "unknown", last.acknowledged_at_us))
            found.append(Stage("happened, a person said", "acknowledged", None))
        elif last.acknowledged_mark and effect.outcome == "error":
            found.append(Stage("acknowledged: error", "failed", last.acknowledged_at_us))
        elif last.acknowledged_mark:
            found.append(Stage("acknowledged", "acknowledged", last.acknowledged_at_us))
        elif effect.resolution == "happened":
            found.append(Stage("happened, a person said", "acknowledged", None))
        elif last.is_denied:
            found.append(Stage("did not happen, a person said", "failed", last.failed_at_us))
        elif last.failed_mark:
            found.append(Stage(f"failed: {last.failure_reason}", "failed", last.failed_at_us))
    now = shown_state(effect, now_us)
    if now == "unknown":
        found.append(Stage("unknown", "unknown", effect.deadline_us or effect.settled_at_us, open=True))
    elif now == "dispatched":
        found.append(Stage("no answer yet", "dispatched", None, open=True))
    elif now in ("compensated", "superseded"):
        found.append(Stage(now, now, None))
    told = [stage for stage in found if stage.us is not None]
    for stage in told[1:]:
        stage.form = "time" if _day(stage.us) == _day(told[0].us) else ""
    return found


def _day(us: int | None) -> int:
    return (us or 0) // DAY_US
