"""Life line of an effect: the stages that its page draws."""

from dataclasses import dataclass

from display.display_state import derive_shown_state
from display.effect_headline import is_confirmed_only, is_resolved_by_person_only
from display.effect_table import DAY_US
from display.permission_labels import describe_permission_step
from ledger.confirmations import CODE_HOST_LABELS
from ledger.models import Attempt, Effect


@dataclass(slots=True)
class Stage:
    """One stage: its word, when, and whether it is still open.

    `form` is the format for `moment`: the day is shown only if it differs from the first stage.
    """

    word: str
    looks_like: str  # a shown state, for shape and colour
    us: int | None
    open: bool = False
    form: str = ""


def life_stages(effect: Effect, tried: list[Attempt], now_us: int) -> list[Stage]:
    """Return the stages of an effect by the reported times of its last attempt."""
    result = []
    if effect.planned_mark:
        result.append(Stage("planned", "planned", effect.planned_at_us))
    if effect.permission != "none":
        waits = effect.permission == "pending"
        style = (
            "awaiting"
            if waits
            else "failed"
            if effect.permission in ("denied", "bypassed")
            else "decided"
        )
        word = describe_permission_step(effect.permission, effect.permission_basis)
        result.append(Stage(word, style, None, open=waits))
    last = tried[-1] if tried else None
    if last is not None:
        if last.dispatched_mark:
            number = f" again, attempt {last.number}" if last.number > 1 else ""
            result.append(Stage(f"dispatched{number}", "dispatched", last.dispatched_at_us))
        if effect.state == "acknowledged" and is_confirmed_only(effect, last):
            host = CODE_HOST_LABELS[effect.confirmed_by]
            result.append(Stage(f"happened, confirmed by {host}", "acknowledged", None))
        elif last.acknowledged_mark and is_resolved_by_person_only(effect, last):
            result.append(Stage("acknowledged: unknown", "unknown", last.acknowledged_at_us))
            result.append(Stage("happened, resolved by a person", "acknowledged", None))
        elif last.acknowledged_mark and effect.outcome == "error":
            result.append(Stage("acknowledged: error", "failed", last.acknowledged_at_us))
        elif last.acknowledged_mark:
            result.append(Stage("acknowledged", "acknowledged", last.acknowledged_at_us))
        elif effect.resolution == "happened":
            result.append(Stage("happened, resolved by a person", "acknowledged", None))
        elif last.is_denied:
            result.append(
                Stage("did not happen, resolved by a person", "failed", last.failed_at_us)
            )
        elif last.failed_mark:
            result.append(Stage(f"failed: {last.failure_reason}", "failed", last.failed_at_us))
    now = derive_shown_state(effect, now_us)
    if now == "unknown":
        result.append(
            Stage("unknown", "unknown", effect.deadline_us or effect.settled_at_us, open=True)
        )
    elif now == "dispatched":
        result.append(Stage("no answer yet", "dispatched", None, open=True))
    elif now in ("compensated", "superseded"):
        result.append(Stage(now, now, None))
    timed = [stage for stage in result if stage.us is not None]
    for stage in timed[1:]:
        stage.form = "time" if _day_number(stage.us) == _day_number(timed[0].us) else ""
    return result


def _day_number(us: int | None) -> int:
    return (us or 0) // DAY_US
