"""Session bundles: a file for people that another Gatebook can import (decision 0021)."""
