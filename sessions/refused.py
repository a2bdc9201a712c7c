"""What this room's verbs raise when somebody asks for a change that may not be made."""


class RefusedError(ValueError):
    """Nothing was changed. The message is a sentence for the person who asked."""
