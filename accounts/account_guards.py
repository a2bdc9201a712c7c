"""Guards of accounts, members, tokens, repositories and teams, on both databases.

A role, an invitation, a team, an agent's owner, a token or a repository's ref patterns change only
with the `admin.*` entry that says so, and so does whether an account is open. A pseudonym never
changes: the whole journal is attributed by it.
"""

from typing import Final

from accounts.models import Repository
from accounts.people import ACCOUNT_KINDS, OWN_PASSWORD_KINDS
from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_MEMBER_KINDS: Final = ("admin.member_added", "admin.member_changed", "admin.member_removed")
_TEAM_KINDS: Final = ("admin.team_member_added", "admin.team_member_removed")
_PSEUDONYM: Final = (
    "(SELECT pseudonym FROM {{schema}}accounts_person WHERE user_id = {row}.user_id)"
)
_TEAM_PSEUDONYM: Final = (
    "(SELECT person.pseudonym FROM {{schema}}accounts_membership member"
    " JOIN {{schema}}accounts_person person ON person.user_id = member.user_id"
    " WHERE member.id = {row}.membership_id)"
)
_TOKEN_KEPT: Final = (
    "id",
    "project_id",
    "agent_id",
    "public_id",
    "digest",
    "scope",
    "created_at",
    "expires_at",
)
_PATTERNS: Final = ("production_refs", "protected_refs", "patterns_version")


def _quote_default(name: str) -> str:
    """Return the default of a repository's column as SQL, without a line break in a string."""
    lines = str(getattr(Repository(), name)).split("\n")
    new_line = "{only:postgresql}chr(10){end:postgresql}{only:sqlite}char(10){end:sqlite}"
    return f" || {new_line} || ".join(f"'{line}'" for line in lines)


def _says_member(kind: str | tuple[str, ...], row: str, where: str = "") -> str:
    return entry_says(
        kind,
        project=f"{row}.project_id",
        subject=f"{row}.id",
        among=_MEMBER_KINDS,
        where=" AND ".join(
            filter(None, (where, f"{{fact:person}} = {_PSEUDONYM.format(row=row)}"))
        ),
    )


def _says_team(kind: str, row: str) -> str:
    return entry_says(
        kind,
        project=f"{row}.project_id",
        subject=f"{row}.team_id",
        among=_TEAM_KINDS,
        about=f"{{fact:person}} = {_TEAM_PSEUDONYM.format(row=row)}",
    )


_OWNER: Final = (
    "{fact:owner} = COALESCE("
    "(SELECT pseudonym FROM {schema}accounts_person WHERE user_id = NEW.owner_id), '')"
)
# The newest entry about the person's password names it by its salt. A trigger cannot compute the
# keyed digest that the entry has as well: on SQLite, another password with the same salt passes
# here, and the check of rows names it.
_SAYS_OWN_PASSWORD: Final = entry_says(
    OWN_PASSWORD_KINDS,
    project="entry.project",
    subject="",
    among=(*OWN_PASSWORD_KINDS, "admin.password_reset"),
    about="{fact:person} = NEW.pseudonym",
    where="entry.project IN (SELECT id FROM {schema}accounts_project)"
    " AND {fact:salt} <> '' AND"
    " {only:postgresql}strpos{end:postgresql}{only:sqlite}instr{end:sqlite}"
    "((SELECT password FROM {schema}auth_user WHERE id = NEW.user_id),"
    " '$' || {fact:salt} || '$') > 0",
)
_ACCOUNT_PSEUDONYM: Final = "(SELECT pseudonym FROM {schema}accounts_person WHERE user_id = NEW.id)"


def _says_account(kind: str) -> str:
    return entry_says(
        kind,
        project="",
        subject="",
        among=ACCOUNT_KINDS,
        about=f"{{fact:person}} = {_ACCOUNT_PSEUDONYM}",
    )


_INVITED: Final = ("id", "project_id", "user_id", "role", "invited_by", "created_at")

_GUARDS: Final = (
    RowGuard(
        # Imported agents have neither: they cannot act.
        "agent_starts_with_its_entry",
        "accounts_agent",
        "INSERT",
        "NOT "
        + entry_says(
            "admin.agent_created",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where=f"{_OWNER} AND {{fact:team}} = NEW.team",
        ),
        "an agent gets an owner or a team only with admin.agent_created",
        when="NEW.owner_id IS NOT NULL OR NEW.team <> ''",
    ),
    RowGuard(
        "agent_owner_changes_with_its_entry",
        "accounts_agent",
        "UPDATE",
        "NOT "
        + entry_says(
            "admin.agent_changed", project="NEW.project_id", subject="NEW.id", where=_OWNER
        ),
        "an agent gets another owner only with admin.agent_changed",
        columns=("owner_id",),
        when="NEW.owner_id IS {distinct} OLD.owner_id",
    ),
    RowGuard(
        "agent_team_changes_with_its_entry",
        "accounts_agent",
        "UPDATE",
        "NOT "
        + entry_says(
            "admin.agent_team_changed",
            project="NEW.project_id",
            subject="NEW.id",
            where="{fact:team} = NEW.team",
        ),
        "an agent changes its team only with admin.agent_team_changed",
        columns=("team",),
        when="NEW.team <> OLD.team",
    ),
    RowGuard(
        "agent_keeps_its_name",
        "accounts_agent",
        "UPDATE",
        list_changes(("id", "project_id", "name", "created_at")),
        "an agent keeps its name: the journal and the rules name it by that",
        columns=("id", "project_id", "name", "created_at"),
        moment="BEFORE",
    ),
    RowGuard(
        "invitation_is_made_with_its_entry",
        "accounts_invitation",
        "INSERT",
        "NOT "
        + entry_says(
            "admin.member_invited",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="{fact:role} = NEW.role AND entry.actor = NEW.invited_by",
        ),
        "a person is invited only with admin.member_invited",
    ),
    RowGuard(
        "invitation_never_changes",
        "accounts_invitation",
        "UPDATE",
        list_changes(_INVITED),
        "an invitation keeps its person and its role; withdraw it and invite again",
        columns=_INVITED,
        moment="BEFORE",
    ),
    RowGuard(
        "invitation_ends_with_its_entry",
        "accounts_invitation",
        "DELETE",
        "NOT "
        + entry_says(
            ("admin.invitation_declined", "admin.invitation_withdrawn"),
            project="OLD.project_id",
            subject="OLD.id",
            once=True,
        )
        + " AND NOT "
        + entry_says(
            "admin.member_added",
            project="OLD.project_id",
            subject="",
            once=True,
            where="{fact:invitation} = {hex:OLD.id}",
        ),
        "an invitation ends only when it is accepted, declined or withdrawn",
    ),
    RowGuard(
        "membership_starts_with_its_entry",
        "accounts_membership",
        "INSERT",
        f"NOT {_says_member(_MEMBER_KINDS[0], 'NEW', '{fact:role} = NEW.role')}",
        "a person gets a role only with admin.member_added",
    ),
    RowGuard(
        "role_changes_with_its_entry",
        "accounts_membership",
        "UPDATE",
        f"NOT {_says_member(_MEMBER_KINDS[1], 'NEW', '{fact:role} = NEW.role')}",
        "a role changes only with admin.member_changed",
        columns=("role",),
        when="NEW.role <> OLD.role",
    ),
    RowGuard(
        "membership_keeps_its_person",
        "accounts_membership",
        "UPDATE",
        list_changes(("id", "project_id", "user_id", "created_at")),
        "a membership keeps its project and its person",
        columns=("id", "project_id", "user_id", "created_at"),
        moment="BEFORE",
    ),
    RowGuard(
        "membership_ends_with_its_entry",
        "accounts_membership",
        "DELETE",
        f"NOT {_says_member(_MEMBER_KINDS[2], 'OLD')}",
        "a person leaves a project only with admin.member_removed",
    ),
    RowGuard(
        "team_member_starts_with_its_entry",
        "accounts_teammember",
        "INSERT",
        f"NOT {_says_team(_TEAM_KINDS[0], 'NEW')}",
        "a person joins a team only with admin.team_member_added",
    ),
    RowGuard(
        "team_member_never_changes",
        "accounts_teammember",
        "UPDATE",
        "",
        "a team's member is added or removed, and never changed",
        moment="BEFORE",
    ),
    RowGuard(
        # The member's row is read, so before it may be deleted with the person's membership.
        "team_member_ends_with_its_entry",
        "accounts_teammember",
        "DELETE",
        f"NOT {_says_team(_TEAM_KINDS[1], 'OLD')}",
        "a person leaves a team only with admin.team_member_removed",
        moment="BEFORE",
    ),
    RowGuard(
        "team_keeps_its_name",
        "accounts_team",
        "UPDATE",
        list_changes(("id", "project_id", "name", "created_at")),
        "a team keeps its name: rules ask it by name",
        columns=("id", "project_id", "name", "created_at"),
        moment="BEFORE",
    ),
    RowGuard(
        "token_is_issued_with_its_entry",
        "accounts_agenttoken",
        "INSERT",
        "NOT "
        + entry_says(
            "admin.token_issued",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="REPLACE({fact:agent}, '-', '') = {hex:NEW.agent_id}"
            " AND {fact:scope} = NEW.scope"
            " AND ({fact:expires_us} = '') = (NEW.expires_at IS NULL)"
            " AND {fact:digest} = {only:postgresql}left(encode(NEW.digest, 'hex'), 32)"
            "{end:postgresql}{only:sqlite}substr(lower(hex(NEW.digest)), 1, 32){end:sqlite}",
        ),
        "a token is issued only with admin.token_issued",
    ),
    RowGuard(
        "token_keeps_its_secret",
        "accounts_agenttoken",
        "UPDATE",
        list_changes(_TOKEN_KEPT),
        "a token keeps its agent, secret, scope and end; issue another token",
        columns=_TOKEN_KEPT,
        moment="BEFORE",
    ),
    RowGuard(
        "token_is_revoked_with_its_entry",
        "accounts_agenttoken",
        "UPDATE",
        "OLD.revoked_at IS NOT NULL OR NOT "
        + entry_says("admin.token_revoked", project="NEW.project_id", subject="NEW.id", once=True),
        "a token is revoked once, with admin.token_revoked",
        columns=("revoked_at",),
        when="NEW.revoked_at IS {distinct} OLD.revoked_at",
    ),
    RowGuard(
        "token_is_never_deleted",
        "accounts_agenttoken",
        "DELETE",
        "",
        "a token is revoked and never deleted",
        moment="BEFORE",
    ),
    RowGuard(
        "repository_starts_with_the_usual_patterns",
        "accounts_repository",
        "INSERT",
        f"(NEW.production_refs <> {_quote_default('production_refs')}"
        f" OR NEW.protected_refs <> {_quote_default('protected_refs')}"
        " OR NEW.patterns_version <> 1)"
        " AND NOT (SELECT archive FROM {schema}accounts_project WHERE id = NEW.project_id)",
        "a repository starts with the usual ref patterns, as version 1",
    ),
    RowGuard(
        "ref_patterns_change_with_their_entry",
        "accounts_repository",
        "UPDATE",
        "NEW.patterns_version <> OLD.patterns_version + 1 OR NOT "
        + entry_says(
            "admin.repository_changed",
            project="NEW.project_id",
            subject="NEW.id",
            where="{fact:patterns_version} = {text:NEW.patterns_version}",
        ),
        "ref patterns change only with admin.repository_changed, as the next version",
        columns=_PATTERNS,
        when=list_changes(_PATTERNS),
    ),
    RowGuard(
        "repository_keeps_its_name",
        "accounts_repository",
        "UPDATE",
        list_changes(("id", "project_id", "name", "created_at")),
        "a repository keeps its name: its ref patterns are of this name",
        columns=("id", "project_id", "name", "created_at"),
        moment="BEFORE",
    ),
    RowGuard(
        "repository_is_never_deleted",
        "accounts_repository",
        "DELETE",
        "",
        "a repository is never deleted: it would start again with other ref patterns",
        moment="BEFORE",
    ),
    RowGuard(
        "pseudonym_never_changes",
        "accounts_person",
        "UPDATE",
        list_changes(("user_id", "pseudonym")),
        "a person keeps their pseudonym: the journal names them by it",
        columns=("user_id", "pseudonym"),
        moment="BEFORE",
    ),
    RowGuard(
        "person_starts_with_the_entry_of_their_password",
        "accounts_person",
        "INSERT",
        f"NOT {_SAYS_OWN_PASSWORD}",
        "a password counts as its owner's only with the entry that names it",
        when="NEW.password_is_own",
    ),
    RowGuard(
        "password_counts_as_own_with_its_entry",
        "accounts_person",
        "UPDATE",
        f"NOT {_SAYS_OWN_PASSWORD}",
        "a password counts as its owner's only with the entry that names it",
        columns=("password_is_own",),
        when="NEW.password_is_own AND NOT OLD.password_is_own",
    ),
    RowGuard(
        # Pages attribute what a person did by this name. The erasure of the person replaces it.
        "account_keeps_its_username",
        "auth_user",
        "UPDATE",
        f"NEW.username <> COALESCE({_ACCOUNT_PSEUDONYM}, '')",
        "an account keeps its username: pages attribute a person's acts by it",
        columns=("username",),
        when="NEW.username <> OLD.username",
    ),
    RowGuard(
        # A new account is open. With a closed one, a person can neither sign in nor decide.
        "account_is_closed_with_its_entry",
        "auth_user",
        "UPDATE",
        f"NOT {_says_account(ACCOUNT_KINDS[0])}",
        "an account is closed only with admin.account_closed (manage.py close_account)",
        columns=("is_active",),
        when="OLD.is_active AND NOT NEW.is_active",
    ),
    RowGuard(
        # An erased person has the pseudonym as name.
        "account_is_opened_with_its_entry",
        "auth_user",
        "UPDATE",
        f"NEW.username = COALESCE({_ACCOUNT_PSEUDONYM}, '')"
        f" OR NOT {_says_account(ACCOUNT_KINDS[1])}",
        "an account is opened only with admin.account_opened (manage.py open_account)",
        columns=("is_active",),
        when="NEW.is_active AND NOT OLD.is_active",
    ),
    RowGuard(
        # An erased person keeps the row: the erasure takes their name from the account.
        "pseudonym_is_never_deleted",
        "accounts_person",
        "DELETE",
        "",
        "a pseudonym is never deleted: another person could get it",
        moment="BEFORE",
    ),
)

ACCOUNT_GUARDS: Final = build_guards(
    _GUARDS,
    {
        "accounts_agent": (("id",), ("project_id", "name")),
        "accounts_invitation": (("id",), ("project_id", "user_id")),
        "accounts_membership": (("id",), ("project_id", "user_id")),
        "accounts_team": (("id",), ("project_id", "name")),
        "accounts_teammember": (("id",), ("team_id", "membership_id")),
        "accounts_agenttoken": (("id",), ("public_id",)),
        "accounts_repository": (("id",), ("project_id", "name")),
        "accounts_person": (("user_id",), ("pseudonym",)),
        "auth_user": (("id",), ("username",)),
    },
    needs=("accounts_project", "accounts_person", "accounts_membership", "auth_user"),
)
