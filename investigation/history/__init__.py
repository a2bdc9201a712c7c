"""State as of a time or journal position, rebuilt from the journal. Writes nothing."""
