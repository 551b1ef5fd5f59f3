"""Which of the rules that were tried on a table explains it, and the words for it.

A rule may fit a few rows by chance: so many bits of evidence are asked for, the more the more rules were tried.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.dispatch.fitting import EXPLAINED, FILLED, RULES, SEEN_BITS, TABLE, TRIED, n_values, summed, tried_up_to
from ticdc_lab.dispatch.given import AND, COLUMN, NOTHING_GIVEN, OF_NAME, GivenRules
from ticdc_lab.dispatch.other_names import name_bits, other_name_words
from ticdc_lab.engine.shuffle import Batches
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.words import count, some_of

SURE_BITS = 16
"""By so many bits rows must show unrecorded partitions, or one of many combinations of columns: a row in the
partition where a rule puts it shows as many as that is one of."""

AGAINST_BITS = 8
"""What a row takes from them that only a rule by the recorded partitions explains."""

CHANCE = 0.1
"""Share of a table's rows by which what a rule explains must exceed its fullest partition, to be no chance."""

BEST = f"{TRIED}, explains boolean, untold boolean, by_chance boolean, tried string, unshown string"
"""Of each table the best rule: whether it explains what moved, or may be ``ts``, undecided, or is a combination
that fits rows too few to be sure; in words which rules were tried, and, where no rule explains it, the columns whose
hash the log does not show."""


def best_in(batches: Batches) -> Batches:
    """Of all rules tried on a table the one that explains most rows, of equals the simplest."""
    whole = pa.Table.from_batches(batches, schema=arrow_of(TRIED))
    moved = {tuple(t.values()) for t in whole.filter(pc.is_null(whole["rule"])).select(TABLE).to_pylist()}
    of_table: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    by_more: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in summed(whole.filter(pc.is_valid(whole["rule"]))).to_pylist():
        table = tuple(r[c] for c in TABLE)
        if r["partitions"] == r["recorded"]:
            of_table.setdefault(table, {})[r["rule"]] = r
        elif table in moved or r["recorded"] == 1:
            by_more.setdefault(table, []).append(r)
    judged = {t: _judged(rules) | {"moved": t in moved} for t, rules in of_table.items()}
    more = {t: [r for r in by_more.get(t, []) if _may_be(r, judged[t])] for t in judged}
    sure = {t: [r for r in rules if r["given"] or _is_sure(r, of_table[t], judged[t])] for t, rules in more.items()}
    # all tables of a topic have one number of partitions: what one has too few values for, another may show
    told = {(t[0], r["partitions"]) for t, rules in sure.items() for r in rules}
    for t, rules in more.items():
        least = judged[t]["n_explained"]
        known = [r for r in rules if (t[0], r["partitions"]) in told and r["n_explained"] >= least]
        if found := sure[t] or known:
            first = max(found, key=lambda r: (r["given"], r["n_explained"], -r["rank"], -r["partitions"], r["rule"]))
            judged[t] = first | {"explains": True, "untold": False, "moved": True, "by_chance": False}
    yield pa.RecordBatch.from_pylist(list(judged.values()), schema=arrow_of(BEST))


def _judged(rules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The best of a table's rules. Without commit_ts ``ts`` explains nothing, but may be what rows were sent by.

    Then no other rule explains more than lies in the fullest partition anyway. A given rule needs no
    more rows than chance allows; of many combinations one fits a few rows by chance.
    """
    # a combination is not tried on every row, but on most, else some rows fit it by chance
    of_all, columns = max(r["n_rows"] or 0 for r in rules.values()), max(r["columns"] for r in rules.values())
    tried = [r for n, r in rules.items() if not n.startswith(FILLED) and 2 * (r["n_rows"] or 0) >= of_all]
    own = next((r for r in rules.values() if r["given"]), None)
    unknown = [n for n, r in rules.items() if r["n_unknown"] and 2 * (r["n_rows"] or 0) < of_all]
    unshown = some_of(sorted(n.removeprefix(COLUMN) for n in unknown if n.startswith(COLUMN) and AND not in n))
    told = _tried_words(columns, own, unshown)
    if own is not None and 2 * own["n_rows"] >= of_all and (_fits_all(own) or evidence_bits(own) >= AGAINST_BITS):
        return own | {"explains": own["moves"], "untold": False, "by_chance": False, "tried": told}
    simple = [r for r in tried if r["rank"] <= len(RULES)]
    if any(_fits_all(r) for r in simple):  # what is simpler, and tried on all rows, counts
        tried = simple
    best, ts = max(tried, key=lambda r: (r["n_explained"], -r["rank"], r["rule"])), rules["ts"]
    unsure = False
    if best["rank"] > len(RULES) and _fits_all(best):
        single = sum(n.startswith(COLUMN) and r["rank"] == RULES["columns"] for n, r in rules.items())
        number = _combinations(columns) or comb(single, 2) or 1
        number <<= name_bits(best["partitions"]) if OF_NAME in best["rule"] else 0
        bits, n = evidence_bits(best) - np.log2(number), _different(best)
        first = max(simple, key=lambda r: (r["n_explained"], -r["rank"], r["rule"]))
        if bits < SURE_BITS:  # a fault beside a simpler rule may be the better explanation
            unsure = bool(evidence_bits(first, n) - np.log2(len(simple)) <= max(0, bits))
            by = "combination" if number == 1 else f"one of {number:,} combinations"
            of = f"{first['n_explained']:,} of {first['n_rows']:,} rows"
            chance = f"; {first['rule']} explains {of}, {by} all, by chance"
            best, told = (best, told) if unsure else (first, told + chance)
    by_chance = best["n_explained"] <= _fullest(rules) + CHANCE * best["n_rows"]
    fits = _fits_all(best)
    if not fits and _fullest(rules) == of_all and of_all * np.log2(best["partitions"]) >= SURE_BITS:
        told += _IN_ONE
    may_be_ts = ts["n_explained"] < ts["n_possible"] >= EXPLAINED * ts["n_rows"] and not fits
    explains = not unsure and best["moves"] and (fits or (best is ts and may_be_ts and not by_chance))
    found = {"explains": explains, "untold": may_be_ts and by_chance, "by_chance": unsure, "tried": told}
    found |= {"unshown": None if fits else unshown or None}
    return best | found


_IN_ONE = (
    "; all its rows lie in one partition, as by table under another name (a route of the changefeed, or a rename), "
    "which the changefeed's file decides (--changefeed FILE)"
)


def _tried_words(columns: int, own: dict[str, Any] | None, unshown: str) -> str:
    """Which rules were tried; not those over columns that are ``unshown``."""
    up_to, n = tried_up_to(columns), count(_combinations(columns), "combination")
    several = f"{n} of up to {up_to} columns" if up_to < columns else f"{n} of columns"
    named = None if own is None or own["rule"] in RULES else f"the changefeed's {own['rule']}"
    but = f" but not {unshown}, whose hash the log does not show" if unshown else ""
    more = [several if up_to > 1 else None, "columns under another name" if columns else None]
    return ", ".join(filter(None, [named, "table, index-value, ts, each column", *more])) + but


def _combinations(columns: int) -> int:
    """How many combinations of so many columns are tried."""
    return sum(comb(columns, size) for size in range(2, tried_up_to(columns) + 1))


def _may_be(r: dict[str, Any], best: dict[str, Any]) -> bool:
    """Whether a rule by more partitions than were recorded may explain a table: where none by those does, or the same,
    as it does where the recorded are a part of its number; one partition, which all rules fill, shows no rule.
    """
    return _fits_all(r) and (r["recorded"] == 1 or r["rule"] == best["rule"] or not _fits_all(best))


def _is_sure(r: dict[str, Any], rules: dict[str, dict[str, Any]], best: dict[str, Any]) -> bool:
    """Whether it does explain it, and no chance nor the same rule by fewer."""
    bits = r["seen"].bit_count() * np.log2(n_values(r["partitions"], r["recorded"]))
    bits -= AGAINST_BITS * max(0, best["n_explained"] - r["n_explained"])
    apart = r["recorded"] == 1 or r["n_explained"] >= _fullest(rules) + CHANCE * best["n_rows"]
    return bool(bits >= SURE_BITS) and apart


def _fits_all(r: dict[str, Any]) -> bool:
    fits: bool = r["n_explained"] >= EXPLAINED * r["n_rows"]
    return fits


def _fullest(rules: dict[str, dict[str, Any]]) -> int:
    """How many rows of a table its fullest partition holds."""
    return max(int(r["n_explained"]) for name, r in rules.items() if name.startswith(FILLED))


def _different(r: Mapping[str, Any]) -> float:
    """About how many different values a rule explains, of up to 63: so many bits are set, and some by several."""
    return SEEN_BITS * float(-np.log1p(-min(r["seen"].bit_count(), SEEN_BITS - 1) / SEEN_BITS))


def evidence_bits(r: Mapping[str, Any], n: float | None = None) -> float:
    """How surely rows show a rule: of chance, by which a row lies where a rule puts it, so many bits apart.

    Of ``n`` different rows; by default those that it counted, or all.
    """
    chance = 1 / r["partitions"]
    share = r["n_explained"] / r["n_rows"] if r["n_rows"] else 0.0
    if share <= chance:
        return 0.0
    if n is None:
        n = _different(r) if r["seen"] else r["n_rows"]
    rest = (1 - share) * np.log2((1 - share) / (1 - chance)) if share < 1 else 0.0
    return float(n * (share * np.log2(share / chance) + rest))


def of_moved(batches: Batches) -> Batches:
    """The best rules of tables with rows that moved."""
    for batch in batches:
        yield batch.filter(batch["moved"])


CAUSES = """
topic string, schema_name string, table_name string, cause string, partition int, offset bigint, seq int, may_be string,
tried string
"""


def causes_in(
    batches: Batches, *, given: GivenRules = NOTHING_GIVEN, names: Collection[tuple[str, str]] = ()
) -> Batches:
    """:func:`cause_of` of tables, as rows."""
    for batch in batches:
        said = [{c: r[c] for c in TABLE} | cause_of(r, given, names) for r in batch.to_pylist()]
        yield pa.RecordBatch.from_pylist(said, schema=arrow_of(CAUSES))


def cause_of(r: dict[str, Any], given: GivenRules, names: Collection[tuple[str, str]] = ()) -> dict[str, Any]:
    """Why rows of a table moved, or what may be why, or what was tried in vain.

    ``names``: schemas and tables that it may have upstream.
    """
    n, whole = r["partitions"], r["n_explained"] == r["n_rows"]
    share = f"all {r['n_rows']:,}" if whole else f"{r['n_explained']:,} of {r['n_rows']:,}"
    beyond = f"; the recording has no partition from {r['recorded']} on" if n > r["recorded"] else ""
    columns, _, crc = r["rule"].removeprefix(COLUMN).partition(OF_NAME)
    several = r["rank"] - bool(crc) > len(RULES) + 1
    by = f"columns {columns.replace(AND, ' and ')}" if several else f"column {columns}"
    if crc:
        other = other_name_words(int(crc), n, own=(r["schema_name"], r["table_name"]), names=names)
        by += f" under {other} (the changefeed may route the table, or it was renamed)"
    lie = f"({share} rows lie in the partition of {'their' if several else 'its'} hash mod {n}{beyond})"
    if r["explains"]:
        as_given = f", as {given.source} says" if r["given"] else ""
        rule = f"{by}, whose value{'s change' if several else ' changes'}{as_given} {lie}"
        if r["rule"] == "ts":
            rule = f"ts{as_given} ({share} rows lie in partition commit_ts mod {n}{beyond})"
        last = n - 1 if n > r["recorded"] else None
        return {"cause": f"the table is dispatched by {rule}", "partition": last}
    if r["untold"]:
        return {"may_be": "ts; without commit_ts this cannot be checked"}
    if r["by_chance"]:
        return {"may_be": f"{by} {lie}; so few rows may lie there by chance, and the changefeed's file decides it"}
    if r["unshown"]:
        return {"may_be": f"a column whose hash the log does not show ({r['unshown']})"}
    return {"tried": r["tried"]}
