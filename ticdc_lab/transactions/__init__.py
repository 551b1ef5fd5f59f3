"""Upstream transactions restored from a recorded log; each change once, and the order that is safe to apply."""

from __future__ import annotations

from ticdc_lab.transactions.restoring import (
    change_id,
    duplicates,
    op_rank,
    resolved_at,
    restored_transactions,
    split_key_updates,
    transaction_rows,
    transactions,
)

__all__ = [
    "change_id",
    "duplicates",
    "op_rank",
    "resolved_at",
    "restored_transactions",
    "split_key_updates",
    "transaction_rows",
    "transactions",
]
