"""Reading bundles of another Gatebook: strictly, whole, and as the history that they are (decision 0021)."""
