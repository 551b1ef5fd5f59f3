"""Upstream transactions restored from a recorded log; each change once, and the order that is safe to apply."""

from __future__ import annotations

from ticdc_lab.transactions.restoring import (
    duplicates,
    first_repeated,
    known_places,
    log_places,
    of_restored,
    restored_here,
    restored_transactions,
    split_key_updates,
    transaction_rows,
    transactions,
)
from ticdc_lab.transactions.suspects import OffsetGap, gaps_in, suspects

__all__ = [
    "OffsetGap", "duplicates", "first_repeated", "gaps_in", "known_places", "log_places", "of_restored",
    "restored_here", "restored_transactions", "split_key_updates", "suspects", "transaction_rows", "transactions",
]  # fmt: skip
