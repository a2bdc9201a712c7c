"""The one writer of users, Person and Membership: accounts, pseudonyms and roles."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session as SignIn
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from accounts import teams
from accounts.audit_log import record_admin_entry
from accounts.models import ROLES, Membership, Person, Project
from accounts.projects import load_oldest_project
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from db.triggers import TriggerSet
from journal import entries
from journal.entries import SYSTEM_SOURCE


def ensure_pseudonym(user: User) -> str:
    """Return the only name of `user` in the journal, created on the first call.

    It is created in the caller's transaction and never changes. `user` caches it, except where this
    call created it, because that may be rolled back.
    """
    remembered: str | None = getattr(user, _REMEMBERED, None)
    if remembered:
        return remembered
    loaded: Person | None = user._state.fields_cache.get("person")  # with select_related
    if loaded is not None and remembered is None:
        return loaded.pseudonym
    person, created = Person.objects.get_or_create(
        user=user, defaults={"pseudonym": f"p_{secrets.token_hex(8)}"}
    )
    if created:
        setattr(user, _REMEMBERED, "")
    elif remembered is None:
        setattr(user, _REMEMBERED, person.pseudonym)
    return person.pseudonym


_REMEMBERED: Final = "_gatebook_pseudonym"  # absent: not read yet; "": never cached


def digest_account(pseudonym: str, user: int) -> str:
    """Return what entries say of the account that a pseudonym stands for.

    The map of pseudonyms is in no entry, because it can be erased; this shows whether it changed.
    """
    return entries.keyed_digest("account", pseudonym, str(user))


def has_username(username: str) -> bool:
    """Return True when this installation has a user called `username`."""
    return User.objects.filter(username=username).exists()


def generate_password() -> str:
    """Return a random password: 24 characters, about 119 bits, no look-alike letters."""
    alphabet = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
    return "-".join("".join(secrets.choice(alphabet) for _ in range(6)) for _ in range(4))


@transaction.atomic(savepoint=False)
def create_administrator(
    username: str, password: str, project: Project, *, actor: str = SYSTEM_SOURCE
) -> User:
    """Create a person who administers `project`. Raises ChangeRefused."""
    if has_username(username):
        raise ChangeRefused(f"There is already a person called {username!r}.")
    return add_project_member(project, username, "administrator", password, actor=actor).user


@transaction.atomic(savepoint=False)
def add_project_member(
    project: Project,
    username: str,
    role: str,
    password: str | None = None,
    *,
    actor: str = SYSTEM_SOURCE,
    must_replace: bool = False,
    invitation: UUID | None = None,
) -> Membership:
    """Give the person called `username` a role in `project`; return the membership.

    A new name becomes a new person, who needs a `password`; an existing person keeps theirs. With
    `must_replace` the owner must replace the password, because an administrator saw it. Without it
    the password counts as the owner's: only the operator of the machine saw it (`manage.py setup`).
    Raises ChangeRefused.
    """
    check_role(role)
    user = User.objects.filter(username=username).first()
    if user is not None and Membership.objects.filter(project=project, user=user).exists():
        raise ChangeRefused(
            f"{username} already belongs to {project.name}. Change the role instead."
        )
    if user is None:
        user = create_user(project, username, password, actor=actor, must_replace=must_replace)
    elif not user.is_active:
        raise ChangeRefused(
            f"The account of {username} is closed. Open it first: manage.py open_account."
        )
    membership = Membership(project=project, user=user, role=role)
    pseudonym = ensure_pseudonym(user)
    # The entry comes first: guards refuse a role without one (account_guards.py).
    facts: dict[str, object] = {
        "person": pseudonym,
        "role": role,
        "account": digest_account(pseudonym, user.pk),
        "active": True,
    }
    if invitation is not None:
        facts["invitation"] = invitation.hex
    _record(membership, "admin.member_added", actor, facts)
    membership.save(force_insert=True)
    return membership


@transaction.atomic(savepoint=False)
def change_project_role(membership: Membership, role: str, *, actor: str) -> None:
    """Give a member another role; the same role changes nothing.

    Raises ChangeRefused when the project would lose its last administrator, or when the member has
    been removed.
    """
    check_role(role)
    _lock_member(membership)
    before = membership.role
    if before == role:
        return
    if before == "administrator":
        _require_other_administrator(membership)
    membership.role = role
    facts = {"person": ensure_pseudonym(membership.user), "role": role, "role_before": before}
    _record(membership, "admin.member_changed", actor, facts)
    membership.save(update_fields=["role"])


@transaction.atomic(savepoint=False)
def remove_all_members(project: Project, *, actor: str) -> None:
    """Remove everybody from a sample project that ends. Raises ChangeRefused for others."""
    if not project.is_sample:
        raise ChangeRefused(f"{project.name} is not a sample project; it keeps its people.")
    for membership in Membership.objects.filter(project=project).select_related("user"):
        _remove_membership(membership, actor)


@transaction.atomic(savepoint=False)
def remove_project_member(membership: Membership, *, actor: str) -> None:
    """Remove a person from a project. What they did stays on record.

    Raises ChangeRefused as change_role does.
    """
    _lock_member(membership)
    if membership.role == "administrator":
        _require_other_administrator(membership)
    _remove_membership(membership, actor)


def _remove_membership(membership: Membership, actor: str) -> None:
    teams.remove_from_all_teams(membership, actor=actor)
    facts = {"person": ensure_pseudonym(membership.user), "role_before": membership.role}
    _record(membership, "admin.member_removed", actor, facts)
    membership.delete()


@transaction.atomic(savepoint=False)
def reset_member_password(membership: Membership, by: User, *, actor: str) -> str:
    """Give a member a generated password, return it, and end all their sign-ins.

    Raises ChangeRefused for one's own password, and for a person who belongs to a project that `by`
    does not administer: a password lets its setter sign in, and a project's administrator has no
    access to other projects.
    """
    user = membership.user
    if user.pk == by.pk:
        raise ChangeRefused("This is your own account. Change your password under your name.")
    administered = Membership.objects.filter(user=by, role="administrator").values("project")
    elsewhere = Membership.objects.filter(user=user).exclude(project__in=administered)
    if elsewhere.exists() or user.is_superuser:
        raise ChangeRefused(
            f"{user.get_username()} also belongs to a project that you do not administer. "
            "Ask your operator to set the password: manage.py changepassword."
        )
    password = generate_password()
    ensure_pseudonym(user)
    user.set_password(password)
    user.save(update_fields=["password"])
    _record_password(membership.project_id, user, "admin.password_reset", actor)
    _store_giver(user, actor)
    return password


@transaction.atomic(savepoint=False)
def set_password_on_server(username: str, password: str) -> None:
    """Set the password of an account for the operator of the machine. Its owner must replace it.

    Recorded in every project of the person. Raises ChangeRefused for an unknown account, and for
    that of an erased person.
    """
    user = _lock_account(username)
    if username == ensure_pseudonym(user):
        raise ChangeRefused(f"{username} was erased. Invite the person under a new name.")
    user.set_password(password)
    user.save(update_fields=["password"])
    _record_password_in_projects(user, "admin.password_reset", SYSTEM_SOURCE)
    _store_giver(user, SYSTEM_SOURCE)


@transaction.atomic(savepoint=False)
def change_own_password(user: User, password: str) -> None:
    """Store a person's own new password, which the form has checked.

    Recorded in every project of the person.
    """
    ensure_pseudonym(user)
    user.set_password(password)
    _store_own_password(user, "admin.password_changed")


@transaction.atomic(savepoint=False)
def rehash_password(user: User, password: str) -> None:
    """Rehash the password that `user` just entered, if it is their own.

    One that somebody else set is replaced before it allows anything.
    """
    if has_own_password(user):
        user.set_password(password)
        _store_own_password(user, "admin.password_rehashed")


def has_own_password(user: User) -> bool:
    """Return True when only `user` set their current password, as far as stored."""
    return Person.objects.filter(user=user, password_is_own=True).exists()


def load_password_giver(user: User) -> tuple[str, datetime] | None:
    """Return who else last set the password of `user`, and when; None if nobody did.

    The name is empty for a command on the server.
    """
    person = Person.objects.filter(user=user, password_given_at__isnull=False).first()
    if person is None or person.password_given_at is None:
        return None
    giver = User.objects.filter(person__pseudonym=person.password_given_by).first()
    return "" if giver is None else giver.get_username(), person.password_given_at


def find_recent_password_giver(user: User, at_us: int) -> str:
    """Return who else set the password of `user` within RECENT_PASSWORD before `at_us`.

    That person may have acted in the user's name. Empty if nobody did.
    """
    person: Person | None = getattr(user, "person", None)
    if (
        person is None
        or person.password_given_at is None
        or person.password_given_by == SYSTEM_SOURCE
    ):
        return ""
    if (
        not timedelta()
        <= datetime.fromtimestamp(at_us / 1_000_000, UTC) - person.password_given_at
        <= RECENT_PASSWORD
    ):
        return ""
    giver = User.objects.filter(person__pseudonym=person.password_given_by).first()
    return "a command on the server" if giver is None else giver.get_username()


def require_own_password(user: User) -> None:
    """Raise ChangeRefused while another person knows the password of `user`.

    That person may have signed in with it.
    """
    if not has_own_password(user):
        raise ChangeRefused(OWN_PASSWORD_REQUIRED_TEXT)


RECENT_PASSWORD: Final = timedelta(days=7)
OWN_PASSWORD_REQUIRED_TEXT: Final = (
    "Another person set your password. Change it under your name, Password, and try again."  # noqa: S105 - a text
)


@transaction.atomic(savepoint=False)
def save_person_settings(user: User, **settings: Any) -> None:
    """Store a person's own settings: `theme`, `clock`, `single_keys`. Not journalled."""
    ensure_pseudonym(user)
    Person.objects.filter(user=user).update(**settings)


@transaction.atomic(savepoint=False)
def give_first_password(user: User, password: str, *, actor: str) -> None:
    """Give an unused account another first password, which the entry of its invitation records."""
    user.set_password(password)
    user.save(update_fields=["password"])
    _store_giver(user, actor)


OWN_PASSWORD_KINDS: Final = (
    "admin.password_changed",
    "admin.password_rehashed",
    "admin.password_given",
)


def _store_own_password(user: User, kind: str) -> None:
    """Store the password set on `user` as their own; keep who set the last one."""
    person = Person.objects.get(user=user)
    user.save(update_fields=["password"])
    _record_password_in_projects(user, kind, person.pseudonym)
    Person.objects.filter(user=user).update(
        password_is_own=True,
        password_given_by=person.password_given_by,
        password_given_at=person.password_given_at,
    )


def _record_password_in_projects(user: User, kind: str, actor: str) -> None:
    """Record a password in every project of the person.

    Without one, it is recorded in the first project that is no archive, by Gatebook and without
    their name: its members do not know the person.
    """
    projects = list(Membership.objects.filter(user=user).values_list("project", flat=True))
    for project in sorted(projects):
        _record_password(project, user, kind, actor)
    if not projects:
        _record_password(load_oldest_project(), user, kind, SYSTEM_SOURCE, is_named=False)


def _record_password(
    project: UUID, user: User, kind: str, actor: str, *, is_named: bool = True
) -> None:
    """Record the password that is now stored for `user`; `kind` says whether it is their own.

    The entry comes first: a guard lets the mark be set for no other password (account_guards.py).
    The guard and `manage.py rebuild` find the person by the pseudonym in the facts; the body names
    them only if `is_named`.
    """
    person = ensure_pseudonym(user)
    record_admin_entry(
        project,
        kind,
        actor=actor,
        subject=Membership.objects.filter(project=project, user=user)
        .values_list("id", flat=True)
        .first(),
        facts={
            "person": person,
            "account": digest_account(person, user.pk),
            "salt": read_password_salt(user.password),
            "password": digest_password(user.password),
        },
        words={"username": user.get_username(), "person": person} if is_named else {},
    )


def read_password_salt(encoded: str) -> str:
    """Return the salt of a stored password: it names this password and reveals nothing of it."""
    return max(encoded.split("$")[1:-1], key=len, default="")


def digest_password(encoded: str) -> str:
    """Return what an entry says of a stored password. Another one can have the same salt."""
    return entries.keyed_digest("password", encoded)


def _store_giver(user: User, actor: str, *, counts_as_own: bool = False) -> None:
    """Store that `actor` set the password of `user`, and so knows it."""
    Person.objects.filter(user=user).update(
        password_is_own=counts_as_own,
        password_given_by=actor,
        password_given_at=timezone.now(),
    )


@transaction.atomic(savepoint=False)
def create_user(
    project: Project,
    username: str,
    password: str | None,
    *,
    actor: str,
    must_replace: bool = False,
    is_invited: bool = False,
) -> User:
    """Create an account that belongs to no project yet. Raises ChangeRefused.

    A password that a command on the server gave counts as the owner's unless `must_replace`. The
    password is recorded in `project`; that of an account that `is_invited` is in the entry of its
    invitation, which does not tell whether the account is new.
    """
    user = User(username=username)
    try:
        user.full_clean(exclude=["password"])
        if password is None:
            raise ChangeRefused(f"There is no person {username!r}. A new person needs a password.")
        validate_password(password, user)
    except ValidationError as error:
        raise ChangeRefused(" ".join(error.messages)) from error
    user.set_password(password)
    user.save()
    ensure_pseudonym(user)
    counts_as_own = actor == SYSTEM_SOURCE and not must_replace and not is_invited
    if not is_invited:
        kind = "admin.password_given" if counts_as_own else "admin.password_reset"
        _record_password(project.id, user, kind, actor)
    _store_giver(user, actor, counts_as_own=counts_as_own)
    return user


ACCOUNT_KINDS: Final = ("admin.account_closed", "admin.account_opened")


@transaction.atomic(savepoint=False)
def close_account(username: str, *, actor: str = SYSTEM_SOURCE) -> int:
    """Close an account: the person can no longer sign in or decide. Return how many sign-ins end.

    Roles, teams and agents stay the person's. Raises ChangeRefused for an unknown or closed
    account, and when a project would lose its last active administrator.
    """
    user = _lock_account(username)
    if not user.is_active:
        raise ChangeRefused(f"The account of {username} is closed already.")
    project = find_dependent_project(user)
    if project is not None:
        raise ChangeRefused(
            f"{username} is the last active administrator of {project.name}. Make another member"
            " an administrator first."
        )
    _record_account(user, "admin.account_closed", actor)
    User.objects.filter(pk=user.pk).update(is_active=False)
    return _end_sign_ins(user)


@transaction.atomic(savepoint=False)
def open_account(username: str, *, actor: str = SYSTEM_SOURCE) -> None:
    """Open a closed account: the person signs in with the password that they had.

    Raises ChangeRefused for an unknown or open account, and for that of an erased person.
    """
    user = _lock_account(username)
    if user.is_active:
        raise ChangeRefused(f"The account of {username} is open already.")
    # An erasure takes the password at its start, and the name at its end.
    if username == ensure_pseudonym(user) or not user.has_usable_password():
        raise ChangeRefused(f"{username} was erased. Invite the person under a new name.")
    _record_account(user, "admin.account_opened", actor)
    User.objects.filter(pk=user.pk).update(is_active=True)


@transaction.atomic(savepoint=False)
def deactivate_user(user: User, *, actor: str) -> None:
    """End the account of a person who is being erased.

    It is recorded where the person belongs to projects, so before they leave. Repeating records
    nothing.
    """
    if User.objects.filter(pk=user.pk, is_active=True).exists():
        _record_account(user, "admin.account_closed", actor)
    user.set_unusable_password()
    User.objects.filter(pk=user.pk).update(is_active=False, password=user.password)


def find_dependent_project(user: User) -> Project | None:
    """Return a project whose only active administrator is `user`, or None."""
    others = Membership.objects.filter(
        project=OuterRef("project"), role="administrator", user__is_active=True
    ).exclude(user=user)
    administered = Membership.objects.filter(user=user, role="administrator")
    alone = administered.filter(~Exists(others)).select_related("project").order_by("id").first()
    return None if alone is None else alone.project


def _lock_account(username: str) -> User:
    """Lock a person's memberships, the other administrators of these projects, and the account.

    Votes lock the voter's membership, changes of roles those of administrators, in this order: two
    administrators can neither close each other nor be closed and demoted at once.
    """
    projects = Membership.objects.filter(user__username=username).values("project")
    condition = Q(user__username=username) | Q(role="administrator", project__in=projects)
    rows = Membership.objects.select_for_update(of=("self",)).filter(condition)
    list(rows.order_by("project_id", "id").values_list("id"))
    user = User.objects.select_for_update(no_key=True).filter(username=username).first()
    if user is None:
        raise ChangeRefused(f"There is no person {username!r}.")
    return user


def _record_account(user: User, kind: str, actor: str) -> None:
    """Record that an account is closed or opened, in every project of the person.

    Without one it is recorded as their own password is. The entry comes first: a guard lets the
    account change for no other person (account_guards.py).
    """
    person = ensure_pseudonym(user)
    facts = {"person": person, "account": digest_account(person, user.pk)}
    members = Membership.objects.filter(user=user).order_by("project_id")
    places: list[tuple[UUID, UUID | None]] = list(members.values_list("project", "id"))
    is_named = bool(places)
    for project, subject in places or [(load_oldest_project(), None)]:
        record_admin_entry(
            project,
            kind,
            actor=actor if is_named else SYSTEM_SOURCE,
            subject=subject,
            facts=facts,
            words={"username": user.get_username(), "person": person} if is_named else {},
        )


def _end_sign_ins(user: User) -> int:
    """Delete the sign-ins of a person, which would count again once the account is open."""
    rows = SignIn.objects.filter(expire_date__gt=timezone.now()).iterator(500)
    ended = [row.pk for row in rows if row.get_decoded().get(SESSION_KEY) == str(user.pk)]
    for start in range(0, len(ended), 500):
        SignIn.objects.filter(pk__in=ended[start : start + 500]).delete()
    return len(ended)


def anonymize_user(user: User, pseudonym: str) -> None:
    """Erase the names and the mail address of a person; the pseudonym stays."""
    User.objects.filter(pk=user.pk).update(
        username=pseudonym, first_name="", last_name="", email="", last_login=None
    )


def restore_members(changes: Sequence[RowChange]) -> None:
    """Restore members to what the journal gives (manage.py rebuild)."""
    write_row_changes(Membership, changes)


def restore_people(changes: Sequence[RowChange]) -> None:
    """Restore pseudonyms, and whose password is their own (manage.py rebuild)."""
    for change in changes:  # two people may have exchanged theirs
        if change.values is not None and "pseudonym" in change.values:
            Person.objects.filter(pk=change.key).update(pseudonym=f"(of {change.key})")
    write_row_changes(Person, changes)


def restore_accounts(changes: Sequence[RowChange]) -> None:
    """Restore what the journal gives: usernames, and who is active (manage.py rebuild)."""
    for change in changes:  # two accounts may have exchanged theirs
        if change.values is not None and "username" in change.values:
            User.objects.filter(pk=change.key).update(username=f"(of {change.key})")
    write_row_changes(User, changes)


def check_role(role: str) -> None:
    """Raise ChangeRefused for an unknown role."""
    if role not in ROLES:
        raise ChangeRefused(f"There is no role {role!r}. Choose one of {', '.join(ROLES)}.")


def _lock_member(membership: Membership) -> None:
    """Lock the member and the project's administrators; reload the member's role.

    Locks in one order, so that two administrators who remove or demote each other cannot both
    succeed, nor one whose own role has changed.
    """
    condition = Q(pk=membership.pk) | Q(role="administrator")
    locked = (
        Membership.objects.select_for_update()
        .filter(condition, project=membership.project_id)
        .order_by("id")
    )
    roles = {row.pk: row.role for row in locked}
    if membership.pk not in roles:
        raise ChangeRefused(f"{membership.user.get_username()} no longer belongs to the project.")
    membership.role = roles[membership.pk]


def _require_other_administrator(membership: Membership) -> None:
    remaining = Membership.objects.filter(
        project=membership.project_id, role="administrator", user__is_active=True
    ).exclude(pk=membership.pk)
    if not remaining.exists():
        raise ChangeRefused(
            f"{membership.user.get_username()} is the last active administrator of"
            f" {membership.project.name}. Make another member an administrator first."
        )


def _record(membership: Membership, kind: str, actor: str, facts: Mapping[str, object]) -> None:
    record_admin_entry(
        membership.project_id,
        kind,
        actor=actor,
        subject=membership.id,
        facts=facts,
        words={"username": membership.user.get_username(), **facts},
    )


# A password changed in any way (command, console, SQL) is not its owner's until they replace it.
_GIVEN: Final = (
    "UPDATE {schema}accounts_person SET password_is_own = FALSE, password_given_by = '',"
    " password_given_at = CURRENT_TIMESTAMP WHERE user_id = NEW.id"
)
_CHANGED: Final = (
    "AFTER UPDATE OF password ON auth_user FOR EACH ROW WHEN (NEW.password <> OLD.password)"
)
PASSWORD_TRIGGERS: Final = TriggerSet(
    postgresql={
        "password_changed_is_not_own": (
            "auth_user",
            f"{_CHANGED} EXECUTE FUNCTION agent_sessions_password_changed()",
        )
    },
    functions=f"""
CREATE OR REPLACE FUNCTION agent_sessions_password_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {_GIVEN.replace("{schema}", "{schema}.")};
  RETURN NULL;
END $$;
""",
    sqlite={
        "password_changed_is_not_own": (
            "auth_user",
            f"{_CHANGED} BEGIN {_GIVEN.replace('{schema}', '')}; END",
        )
    },
    needs=("accounts_person",),
)
