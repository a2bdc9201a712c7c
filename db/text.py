"""Free text for database columns."""


def to_column_text(text: str) -> str:
    """Replace NUL, which PostgreSQL rejects, by its symbol.

    Only for titles and the like; the body keeps every character.
    """
    return text.replace("\0", "\u2400")
