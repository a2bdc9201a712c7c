"""The export bundle of a session: a file that people read and that another Gatebook can show (decision 0021)."""
