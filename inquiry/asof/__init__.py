"""The book as of a time or a position: what stood then, made again from the facts of the journal. Writes nothing."""
