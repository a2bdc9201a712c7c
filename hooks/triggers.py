"""Database triggers of code hosts: a stored delivery never changes."""

from db.triggers import TriggerSet

_KEPT = "code_host_delivery_never_changes"
_KEPT_SAYS = f"{_KEPT}: what a code host delivered is kept as it came"
_DELIVERY = "hooks_codehostdelivery"

DELIVERY_TRIGGERS = TriggerSet(
    postgresql={
        _KEPT: (
            _DELIVERY,
            f"BEFORE UPDATE OR DELETE ON {_DELIVERY} FOR EACH ROW"
            " EXECUTE FUNCTION hooks_keep_delivery()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION hooks_keep_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{_KEPT_SAYS}' USING ERRCODE = 'check_violation';
END $$;
""",
    sqlite={
        _KEPT: (
            _DELIVERY,
            f"BEFORE UPDATE ON {_DELIVERY} BEGIN SELECT RAISE(ABORT, '{_KEPT_SAYS}'); END",
        ),
        f"{_KEPT}_nor_goes": (
            _DELIVERY,
            f"BEFORE DELETE ON {_DELIVERY} BEGIN SELECT RAISE(ABORT, '{_KEPT_SAYS}'); END",
        ),
    },
)
