"""Bugs to plant into the two-phase scheduler (``Settings.planted``): each must be caught by who watches a run."""

from __future__ import annotations

PROMOTE_EARLY = "promote before the source stopped"
IGNORE_REVISION = "ignore the owner revision"
SKIP_UNDETERMINED = "skip the undetermined role"
IGNORE_EPOCH = "ignore the processor epoch"
IGNORE_ORDER = "take messages out of order"

MUTANTS = (PROMOTE_EARLY, IGNORE_REVISION, SKIP_UNDETERMINED, IGNORE_EPOCH, IGNORE_ORDER)
"""All of them."""
