"""What another dispatcher, or another number of partitions, would do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ticdc_lab import figures
from ticdc_lab.answers.answer import Answer
from ticdc_lab.dispatch.best_rule import SURE_BITS
from ticdc_lab.dispatch.comparison import first_violation, guarantee_frame, over_time, placement, skew_frame
from ticdc_lab.dispatch.fitting import EXPLAINED
from ticdc_lab.dispatch.whatif import WhatIf
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.figures.figure import Figure
from ticdc_lab.words import count, some_of

PARTITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
"""The numbers of partitions that a person can choose."""

_QUESTION = "What would another dispatcher do?"


def rules_of(found: pd.DataFrame) -> dict[str, str]:
    """Table to the rule that explains its rows best (:func:`ticdc_lab.dispatch.infer_rules`), of one topic."""
    told = found.drop_duplicates(["schema_name", "table_name"]) if len(found) else found
    return {f"{r['schema_name']}.{r['table_name']}": r["rule"] for r in told.to_dict("records") if r["rule"]}


def explaining(found: pd.DataFrame) -> pd.DataFrame:
    """The rules that explain at least :data:`EXPLAINED` of their tables' rows."""
    return found[found["n_explained"] >= EXPLAINED * found["n_rows"]] if len(found) else found


def with_recorded(measured: WhatIf, found: pd.DataFrame) -> WhatIf:
    """The same with the rule that explains each table's rows, where there is one and all of them were measured."""
    of = rules_of(explaining(found))
    known = measured.tables and all(of.get(t) in measured.candidates_of(t) for t in measured.tables)
    return replace(measured, recorded={t: of[t] for t in measured.tables} if known else {})


def without_rule(measured: WhatIf, found: pd.DataFrame) -> list[str]:
    """Clauses that name the tables whose rows no rule explains, and those whose rule was not measured."""
    of, poor = rules_of(explaining(found)), rules_of(found)
    lacking = [t for t in measured.tables if of.get(t) not in measured.candidates_of(t)]
    unexplained = [t for t in lacking if t in poor and t not in of]
    unmeasured = [t for t in lacking if t not in unexplained]
    each = (
        ("no rule that was tried explains the rows of", unexplained),
        ("no measured rule is the one of", unmeasured),
    )
    return [f"{words} {some_of(tables)}" for words, tables in each if tables]


def _about_recorded(measured: WhatIf, found: pd.DataFrame | None) -> list[str]:
    """Notes on the row of the rules as recorded, or why there is none."""
    if found is None or found.empty:
        return []
    if not measured.recorded:
        return [f"No row shows the log as recorded: {said}." for said in without_rule(measured, found)]
    partly, few = found["n_explained"] < found["n_rows"], found["by_chance"]
    says = (
        (partly, "the rule explains some rows only"),
        (few, "too few rows show the rule, which is a guess"),
        (of_another_name(found), "the rule hashes another name of the table, the figures its name in the log"),
    )
    return [f"As recorded: of {some_of(_tables(found[which]))} {words}." for which, words in says if which.any()]


def of_another_name(found: pd.DataFrame) -> pd.Series[bool]:
    """Which of the rules hash another name than the table has in the log, as where it is routed."""
    return found["name_crc"].notna() if "name_crc" in found else found["by_chance"] & False


def by_few_rows(found: pd.DataFrame) -> pd.Series[bool]:
    """Which rules are shown by so few rows that one of the table's columns may explain them by chance."""
    return found["n_rows"] * np.log2(found["partitions"].clip(lower=2)) < SURE_BITS


def _tables(found: pd.DataFrame) -> list[str]:
    return [f"{r['schema_name']}.{r['table_name']}" for r in found.to_dict("records")]


def what_if(
    measured: WhatIf, *, partitions: int, rules: pd.DataFrame | None = None, limits: Sequence[str] = ()
) -> Answer:
    """Compare all dispatchers on a log at a number of partitions; no engine runs.

    ``measured``: :meth:`ticdc_lab.dispatch.whatif.WhatIf.from_events`. ``partitions``: at which the answer is; the
    sliders have :data:`PARTITIONS` as well. ``rules``: by which rule each table was dispatched, as far as its rows
    show; the row on top. ``limits``: further known limits.
    """
    said = [*limits, *([measured.note] if measured.note else [])]
    if not measured.tables:
        return Answer("what-if", _QUESTION, "The log has no row change, so nothing can be dispatched.", {}, said)
    for name in measured.candidates:
        n, why = measured.failed(strategy=name)
        said += [f"{name} cannot place {count(n, 'row')}, which its figures leave out: {why}"] if n else []
    for name, tables in measured.together.items():
        said += [f"{name[1:-1]} are counted together, without their own unique indexes: {some_of(tables)}"]
    if absent := sorted({*measured.candidates} - {*measured.candidates_at(partitions)}):
        said.append(f"{', '.join(absent)}: not measured with {count(partitions, 'partition')}.")
    said += _about_recorded(measured, rules)
    kept = guarantee_frame(measured, partitions=partitions)
    matrix = figures.guarantee_matrix(kept, partitions=partitions)
    frames = {"guarantees": kept, "rows": placement(measured, partitions=partitions), "skew": skew_frame(measured)}
    return Answer(
        "what-if", _QUESTION, f"{matrix.finding}.", frames, said,
        draw=lambda: _drawn(measured, partitions, frames),
    )  # fmt: skip


def rules(found: pd.DataFrame, *, hints: Sequence[str] = ()) -> Answer:
    """By which rule each table was dispatched: :func:`ticdc_lab.dispatch.infer_rules`; ``hints`` are sentences."""
    question = "By which rule was each table dispatched?"
    if found.empty:
        return Answer("rules", question, "The log has no row change, so no rule can be detected.", {"tables": found})
    fits, few = found["n_explained"] == found["n_rows"], found["by_chance"]
    by = found["rule"].mask(of_another_name(found), found["rule"] + " under another name")
    each = by[fits & ~few].value_counts()
    said = ", ".join(f"{n} by {rule}" for rule, n in sorted(each.items(), key=lambda r: (-r[1], r[0])))
    rest = int((~fits).sum())
    none = f"of {rest} no rule that was tried explains all rows" if rest else ""
    unsure = f"of {some_of(_tables(found[few]))} too few rows show the rule" if few.any() else ""
    words = [f"{said} explain every row" if said else "", none, unsure]
    finding = f"Of {count(len(found), 'table')}: {'; '.join(filter(None, words))}."
    limits = [
        f"{rule} is not compared with {count(n, 'row')} of {table}: the log does not show what is hashed."
        for table, n, rule in zip(_tables(found), found["n_unknown"], found["rule"], strict=True)
        if n
    ]
    poor = found[~fits | few]
    tried = [f"{table}: tried {words}." for table, words in zip(_tables(poor), poor["tried"], strict=True)][:MOST_TRIED]
    limits = [*tried, *([_NEWER] if rest else []), *limits]
    return Answer("rules", question, finding, {"tables": found.drop(columns="tried")}, limits, [*hints])


MOST_TRIED = 8
"""An answer lists the rules that were tried in vain for so many tables."""

_NEWER = "A dispatcher that is newer than this is not among them."


def not_measured(limits: Sequence[str]) -> Answer:
    """The answer where the log has no commit_ts."""
    return Answer(
        "what-if", _QUESTION, "It cannot be measured on this log, because nothing orders its changes.", {}, limits
    )


def without_partitions(source: str, *, name: str = "what-if", question: str = _QUESTION) -> Answer:
    """The answer where a storage sink wrote the log: its streams are numbered, but no dispatcher chose among them."""
    topic = f"Dispatchers for a topic of these tables: ticdc-lab advise {shlex.quote(shown_source(source))}"
    return Answer(name, question, f"Nothing: {OF_STORAGE}.", details=[f"{topic} --partitions 4"])


OF_STORAGE = "a storage sink has no partitions and no dispatchers"


def _drawn(measured: WhatIf, partitions: int, frames: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure]:
    """The pictures, with a slider over numbers of partitions where they have one."""
    counts = sorted({*PARTITIONS, partitions})
    others = [n for n in counts if n != partitions]
    kept = {n: guarantee_frame(measured, partitions=n) for n in others} | {partitions: frames["guarantees"]}
    lies = {n: placement(measured, partitions=n) for n in others} | {partitions: frames["rows"]}
    matrices = {str(n): figures.guarantee_matrix(kept[n], partitions=n) for n in counts}
    everywhere = set.intersection(*({*of["strategy"]} for of in lies.values()))  # conflict is not, see candidates_at
    rows = {str(n): figures.partition_rows(of[of["strategy"].isin(everywhere)]) for n, of in sorted(lies.items())}
    over = {
        s: _over_time(measured, s, [n for n in counts if s in measured.candidates_at(n)]) for s in measured.candidates
    }
    over = {s: steps for s, steps in over.items() if steps}
    stepped = {"prefix": "partitions: ", "start": str(partitions)}
    return {
        "guarantees": figures.stepped(matrices, **stepped),
        **_example(measured, partitions),
        "skew": figures.skew_curves(frames["skew"], chosen=partitions),
        "rows per partition": figures.stepped(rows, **stepped),
        "load and breaks over time": figures.stepped_by(over, **stepped),
    }


def _over_time(what_if: WhatIf, strategy: str, counts: Sequence[int]) -> dict[str, Figure]:
    """Load, breaks and alignments of a strategy for each number of partitions; nothing where it places no row."""
    each = {n: over_time(what_if, strategy=strategy, partitions=n) for n in counts}
    return {str(n): figures.dispatch_over_time(o, strategy=strategy) for n, o in each.items() if o.load.sum()}


def _example(what_if: WhatIf, partitions: int) -> dict[str, Figure]:
    """One counterexample, of the first strategy that breaks the order of a row."""
    at = max(2, partitions)
    found = (first_violation(what_if, strategy=s, partitions=at) for s in ("index-value", "ts"))
    first = next((f for f in found if f is not None), None)
    return {} if first is None else {"counterexample": figures.counterexample(first)}
