"""The checks of rows by table, in the order in which their rows refer to each other."""

from rebuild.registry.row_checks import Fault as Fault
from rebuild.registry.row_checks import FoldedRow as FoldedRow
from rebuild.registry.row_checks import RebuildBatch as RebuildBatch
from rebuild.registry.row_checks import RowCheck as RowCheck
from rebuild.registry.row_checks import Unit as Unit
from rebuild.registry.row_checks import list_registered_checks as list_registered_checks
from rebuild.registry.row_checks import list_row_checks as list_row_checks
from rebuild.registry.row_checks import register_row_check as register_row_check
