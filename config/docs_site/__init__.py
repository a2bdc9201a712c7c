"""The documentation site: MkDocs builds it from docs/, and Gatebook serves it at /docs/."""
