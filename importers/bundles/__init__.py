"""Import of bundles from another Gatebook as read-only history (decision 0021)."""
