"""`manage.py open_account NAME`: open an account that was closed."""

from accounts import people
from accounts.management.account_command import AccountCommand


class Command(AccountCommand):
    """Open a closed account."""

    help = (
        "Open an account that close_account closed: the person signs in with the same password, and"
        " has the same roles. The journal records it in each project of the person."
    )

    def change_account(self, username: str) -> str:
        people.open_account(username)
        return f"The account of {username} is open."
