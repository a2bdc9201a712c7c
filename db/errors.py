"""The error of changes that are refused."""


class ChangeRefused(ValueError):
    """Nothing was changed. The message is a sentence for the person who asked."""
