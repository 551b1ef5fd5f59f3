"""Questions about a log, each a pure function from small frames to an :class:`Answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.answers.advice import advice, ask_advice, ask_expansion, ask_partitions, partitions
    from ticdc_lab.answers.answer import Answer
    from ticdc_lab.answers.audit import ask_audit, ask_finding, audit
    from ticdc_lab.answers.compared import ask_compared, ask_fidelity, ask_replay, compared
    from ticdc_lab.answers.consumers import ask_consumers, consumers, excerpt_of
    from ticdc_lab.answers.dispatching import (
        ask_dispatch,
        ask_rules,
        ask_topic,
        ask_what_if,
        catalog_of,
        known_settings,
        measured,
        recorded_partitions,
    )
    from ticdc_lab.answers.rows import ask_row, ask_table, asked_in_sql, messages, timeline, transaction
    from ticdc_lab.answers.settings import settings
    from ticdc_lab.answers.transactions import ask_transaction, ask_transactions, suspects_of, transactions
    from ticdc_lab.answers.watermarks import ask_watermarks, ask_why, complete_to, stalls, watermarks
    from ticdc_lab.answers.what_if import PARTITIONS, rules, what_if, without_partitions
    from ticdc_lab.answers.what_it_holds import contents, holds, load, surveyed

__all__ = [
    "PARTITIONS", "Answer", "advice", "ask_advice", "ask_audit", "ask_compared", "ask_consumers", "ask_dispatch",
    "ask_expansion", "ask_fidelity", "ask_finding", "ask_partitions", "ask_replay", "ask_row", "ask_rules", "ask_table",
    "ask_topic", "ask_transaction", "ask_transactions", "ask_watermarks", "ask_what_if", "ask_why", "asked_in_sql",
    "audit", "catalog_of", "compared", "complete_to", "consumers", "contents", "excerpt_of", "holds", "known_settings",
    "load", "measured", "messages", "partitions", "recorded_partitions", "rules", "settings", "stalls", "surveyed",
    "suspects_of", "timeline", "transaction", "transactions", "watermarks", "what_if", "without_partitions",
]  # fmt: skip

lazily(__name__, __all__)
