"""Bugs that can be planted into the data path of a capture: the checks must catch each of them."""

from __future__ import annotations

FRONTIER_MAX = "the frontier takes the maximum of its regions"
FORGETS_PART = "the frontier forgets a region after a split"
DROPS_EARLY_COMMIT = "the matcher drops a commit that comes before its prewrite"
FROM_NOW = "a region is registered again from now instead of from its resolved_ts"
EMITS_UNRESOLVED = "the sorter emits what is not resolved"
NEWEST_SCHEMA = "the mounter uses the newest schema"
SENT_IS_WRITTEN = "the checkpoint counts rows that were sent as written"
DDL_BEFORE_BARRIER = "a DDL is executed before every table has come to it"
SKIPS_DDL_PULLER = "the owner leaves the DDL puller out of the minimum"
STOP_LOSES_ROWS = "a table that stops loses its rows under way and keeps the checkpoint"
PASSES_RESOLVED = "a checkpoint that is published first does not stop at the table's resolved_ts"
MARKS_RESOLVED = "the owner tells the downstream the global resolved_ts as its watermark"

MUTANTS = (
    FRONTIER_MAX, FORGETS_PART, DROPS_EARLY_COMMIT, FROM_NOW, EMITS_UNRESOLVED, NEWEST_SCHEMA, SENT_IS_WRITTEN,
    DDL_BEFORE_BARRIER, SKIPS_DDL_PULLER, STOP_LOSES_ROWS, PASSES_RESOLVED, MARKS_RESOLVED,
)  # fmt: skip
"""What ``DataCapture.planted`` may hold."""
