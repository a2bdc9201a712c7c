"""Free text in columns."""


def column_text(text: str) -> str:
    """`text` as both databases can hold it: NUL, which PostgreSQL refuses, is shown by its symbol.

    Only titles and the like pass through here; the body keeps every character exactly.
    """
    return text.replace("\0", "\u2400")
