"""`manage.py close_account NAME`: close the account of a person who leaves."""

from accounts import people
from accounts.management.account_command import AccountCommand


class Command(AccountCommand):
    """Close an account, and end its sign-ins."""

    help = (
        "Close an account: the person can no longer sign in or decide, and their approvals do not"
        " count any more. Roles stay. The journal records it in each project of the person."
    )

    def change_account(self, username: str) -> str:
        ended = people.close_account(username)
        return f"The account of {username} is closed. Sign-ins that ended: {ended}."
