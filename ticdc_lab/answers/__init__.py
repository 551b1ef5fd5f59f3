"""Questions about a log, each a pure function from small frames to an :class:`Answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.answers.advice import advice, ask_advice, ask_expansion, ask_partitions, expansion, partitions
    from ticdc_lab.answers.answer import Answer
    from ticdc_lab.answers.audit import ask_audit, ask_finding, audit, finding
    from ticdc_lab.answers.cdc_log import beside_cdc_log
    from ticdc_lab.answers.compared import (
        ask_compared,
        ask_fidelity,
        ask_replay,
        compared,
        fidelity,
        not_compared,
        replayed,
    )
    from ticdc_lab.answers.consumers import ask_consumers, consumers, excerpt_of, not_ordered
    from ticdc_lab.answers.dispatching import (
        ask_dispatch,
        ask_rules,
        ask_topic,
        ask_what_if,
        catalog_of,
        known_settings,
        measured,
        moved,
        produced,
        recorded_partitions,
    )
    from ticdc_lab.answers.rows import (
        against_definition,
        ask_row,
        ask_table,
        asked_in_sql,
        messages,
        row,
        table,
        timeline,
        transaction,
    )
    from ticdc_lab.answers.settings import settings
    from ticdc_lab.answers.transactions import ask_transaction, ask_transactions, suspects_of, transactions
    from ticdc_lab.answers.watermarks import ask_watermarks, ask_why, complete_to, stalls, watermarks
    from ticdc_lab.answers.what_if import OF_STORAGE, PARTITIONS, not_measured, rules, what_if, without_partitions
    from ticdc_lab.answers.what_it_holds import contents, holds, load, surveyed

__all__ = [
    "OF_STORAGE",
    "PARTITIONS",
    "Answer",
    "advice",
    "against_definition",
    "ask_advice",
    "ask_audit",
    "ask_compared",
    "ask_consumers",
    "ask_dispatch",
    "ask_expansion",
    "ask_fidelity",
    "ask_finding",
    "ask_partitions",
    "ask_replay",
    "ask_row",
    "ask_rules",
    "ask_table",
    "ask_topic",
    "ask_transaction",
    "ask_transactions",
    "ask_watermarks",
    "ask_what_if",
    "ask_why",
    "asked_in_sql",
    "audit",
    "beside_cdc_log",
    "catalog_of",
    "compared",
    "complete_to",
    "consumers",
    "contents",
    "excerpt_of",
    "expansion",
    "fidelity",
    "finding",
    "holds",
    "known_settings",
    "load",
    "measured",
    "messages",
    "moved",
    "not_compared",
    "not_measured",
    "not_ordered",
    "partitions",
    "produced",
    "recorded_partitions",
    "replayed",
    "row",
    "rules",
    "settings",
    "stalls",
    "surveyed",
    "suspects_of",
    "table",
    "timeline",
    "transaction",
    "transactions",
    "watermarks",
    "what_if",
    "without_partitions",
]

lazily(__name__, __all__)
