"""What each dispatch rule explains of a log's rows.

One kernel over the checksums of :data:`ticdc_lab.events.schema.DISPATCH`; rows of one table and layout come together.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import combinations, islice
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs.plain.hashes import UNKNOWN
from ticdc_lab.dispatch.given import AND, COLUMN, NOTHING_GIVEN, OF_NAME, GivenRules
from ticdc_lab.dispatch.names import Flavour
from ticdc_lab.dispatch.other_names import name_hashed
from ticdc_lab.engine.shuffle import Batches, bucket_of, several_at_once
from ticdc_lab.events import tso
from ticdc_lab.events.arrays import Bools, Ints, runs
from ticdc_lab.facts.places import grouped
from ticdc_lab.facts.schemas import arrow_of

EXPLAINED = 0.95
"""Least share of a table's rows that a rule must explain to count as theirs; a fault or two must not hide it."""

COMBINATIONS = 1 << 16
"""Combinations of columns that are tried on a table at most: of two columns, of three, .. as long as all of a
number are so few."""

OTHER_NAMES = 1 << 9
"""Combinations of columns that are tried under another name of the table at most: a name costs linear algebra."""

FIRST = 24
"""So many different rows are tried first: a combination that does not explain them is dropped."""

MOST_FITTING = 64
"""Of combinations that fit the rows of a task so many are kept, fewest columns first: where more fit, all may."""

TABLE = ("topic", "schema_name", "table_name")
TRIED = """
topic string, schema_name string, table_name string, rule string, rank int, n_rows bigint, n_explained bigint,
partitions int, recorded int, moves boolean, moved boolean, n_possible bigint, n_unknown bigint, seen bigint,
columns int, given boolean
"""
"""How many rows of a table each rule explains: ``rank`` is how simple it is, ``moves``: it can move a row,
``n_possible`` counts also rows without what ``ts`` reads, ``n_unknown`` rows whose log does not show what the
rule hashes, which are no ``n_rows`` of another one; ``partitions`` may be more than the ``recorded`` ones, where
the last are not there. Of these, and of combinations, ``seen`` has a bit for each of up to 63 different values that
the rule explains: rows of one transaction count as one of them. ``columns`` are those whose combinations were
tried, 0 if none were; ``given`` is the named rule (:class:`GivenRules`). A rule
:data:`FILLED` with a partition's number explains the rows that lie in it. A row with nothing but its table and
``moved``: one of the table's rows did move."""

RULES = {"table": 0, "index-value": 1, "columns": 2, "ts": 3}
"""From the simplest on."""
FILLED = "partition:"
_MASK, SEEN_BITS = (1 << 32) - 1, 63


def tried_in(batches: Batches, *, more: int, given: GivenRules = NOTHING_GIVEN) -> Batches:
    """What each rule explains of all rows of a task, a rule that moves rows also by so many more partitions."""
    held = arrow_of(TRIED).empty_table()
    for several in several_at_once(batches):
        layouts = by_layout(pa.Table.from_batches(several))
        found = [row for own in layouts for row in _fits(own, more=more, given=given)]
        held = summed(pa.concat_tables([held, pa.Table.from_pylist(found, schema=held.schema)]))
    yield from held.combine_chunks().to_batches()


def _fits(rows: pa.Table, *, more: int, given: GivenRules) -> Iterator[dict[str, Any]]:
    """How many rows of one table and layout each rule explains."""
    partition, known = np.asarray(rows["partition"]), {c: rows[c][0].as_py() for c in (*TABLE, "partitions")}
    recorded = known["partitions"]
    names, keys, _ = columns_of(rows)
    simple = ["table", "index-value", "ts", *[COLUMN + name for name in names]]
    several, n_columns = list[str](), 0
    fits = _first_that_fits(rows, simple, given) if recorded > 1 else None
    if recorded > 1 and fits is None:
        several, n_columns = _combinations(rows, given)
    elif fits and (len(rows) < FIRST or fits.startswith(COLUMN)):
        # one may fit only these rows: a pair counts if no simple rule explains the whole log's
        several = _combinations(rows, given, pairs=True)[0]
    known |= {"recorded": recorded, "columns": n_columns, "given": False}
    for number, n in zip(*np.unique(partition, return_counts=True), strict=True):
        yield known | {"rule": f"{FILLED}{number}", "rank": len(RULES), "n_explained": int(n), "moves": False}
    own = given.of_columns(known["schema_name"], known["table_name"], names)
    number = given.partitions or recorded
    for rule in dict.fromkeys([*simple, *several, *([own] if own else [])]):
        value, told = hash_of(rows, rule, given)
        listed = named_columns(rule, names) if rule.startswith(COLUMN) else []
        moves = rule == "ts" or not {*listed} <= {*keys}
        numbers = {*range(recorded, recorded + 1 + (more if moves and rule not in several else 0))}
        for n in sorted(numbers | {number} if rule == own and more and number > recorded else numbers):
            explained = told & (value % n == partition)
            n_explained = int(explained.sum())
            counted = n > recorded or rule in several
            is_simple = len(listed) < 2 and OF_NAME not in rule
            rank = RULES[rule.partition(":")[0]] if is_simple else len(RULES) + len(listed) + (OF_NAME in rule)
            yield known | {
                "rule": rule,
                "partitions": n,
                "rank": rank,
                "n_rows": rows.num_rows if rule == "ts" else int(told.sum()),
                "n_explained": n_explained,
                "n_possible": n_explained + (int((~told).sum()) if rule == "ts" else 0),
                "n_unknown": int((~told).sum()),
                "moves": moves,
                "seen": seen_bits(_telling(value[explained], rule, n, recorded)) if counted else None,
                "given": rule == own and n == number,
            }


def _first_that_fits(rows: pa.Table, rules: Collection[str], given: GivenRules) -> str | None:
    """The first of some rules that explains these rows, None where none does."""
    n, partition = rows["partitions"][0].as_py(), np.asarray(rows["partition"])
    for rule in rules:
        value, told = hash_of(rows, rule, given)
        if 2 * told.sum() >= rows.num_rows and (value % n == partition)[told].sum() >= EXPLAINED * told.sum():
            return rule
    return None


def by_layout(rows: pa.Table, *more: str) -> Iterator[pa.Table]:
    """Rows of one table, partition count and layout together."""
    group = grouped(rows, (*TABLE, "layout", "partitions", *more))[1]
    order = np.argsort(group, kind="stable")
    together = rows.take(pa.array(order)).combine_chunks()
    for part in runs(group[order]):
        yield together[part]


def summed(tried: pa.Table) -> pa.Table:
    """What each rule explains of a table, once."""
    first, of = grouped(tried, (*TABLE, "rule", "partitions", "recorded"))
    found = tried.take(pa.array(first))
    adds: dict[str, np.ufunc] = {"seen": np.bitwise_or, "columns": np.maximum}
    adds |= dict.fromkeys(("n_rows", "n_explained", "n_possible", "n_unknown"), np.add)
    for name, add in adds.items():
        total = np.zeros(len(first), dtype=np.int64)
        add.at(total, of, np.asarray(tried[name].fill_null(0)))
        found = found.set_column(found.schema.get_field_index(name), name, pa.array(total, found[name].type))
    return found


def _combinations(rows: pa.Table, given: GivenRules = NOTHING_GIVEN, *, pairs: bool = False) -> tuple[list[str], int]:
    """Rules over several columns that may explain these rows, where none over one does; they are tried on all of them.

    And of how many columns combinations were tried, 0 if none were. A combination is dropped at the first rows that it
    does not explain, so most cost what some dozen rows do. A share of :data:`EXPLAINED` must fit, as a fault or two may
    be among them. Where none does, columns are tried under another name of the table. With ``pairs`` only pairs of two
    columns are tried, and more of them are kept, as many fit a few rows.
    """
    names, keys, crcs = columns_of(rows)
    n, partition = rows["partitions"][0].as_py(), np.asarray(rows["partition"])
    flat = crcs.combine_chunks() if isinstance(crcs, pa.ChunkedArray) else crcs
    cells = np.asarray(pc.fill_null(pc.list_flatten(flat), 0)).reshape(rows.num_rows, len(names))
    here = np.flatnonzero((cells != UNKNOWN).sum(axis=0) >= EXPLAINED * rows.num_rows)
    names, cells = [names[i] for i in here], cells[:, here]  # a column that most rows do not show proves nothing
    known = np.flatnonzero((cells != UNKNOWN).all(axis=1))
    if not len(known):
        return [], 0
    _, first = np.unique(cells[known], axis=0, return_index=True)
    some = known[np.sort(first)[: 8 * FIRST]]
    table = zlib.crc32(given.hashed_name(*(rows[c][0].as_py() for c in TABLE[1:])).encode())
    own, lies, found = cells[some] ^ 0, partition[some], list[str]()
    up_to, most = tried_up_to(len(names)), OTHER_NAMES if pairs else MOST_FITTING
    for size in range(2, (min(up_to, 2) if pairs else up_to) + 1):
        each = np.array(list(combinations(range(len(names)), size)))
        for stop in sorted({min(FIRST, len(some)), len(some)}):
            if not len(each):
                break
            value = np.bitwise_xor.reduce(own[:stop][:, each], axis=2) ^ table
            each = each[((value % n) == lies[:stop, None]).sum(axis=0) >= EXPLAINED * stop]
        found += [COLUMN + AND.join(names[i] for i in c) for c in each.tolist() if {names[i] for i in c} != {*keys}]
        if len(found) >= most:
            break
    if not found and not pairs and (other := _of_another_name(rows, names, cells[known], partition[known], given)):
        found = [other]
    return found[:most], len(names) if up_to > 1 else 0


def _of_another_name(rows: pa.Table, names: list[str], cells: Ints, lies: Ints, given: GivenRules) -> str | None:
    """A rule that explains rows if their table has another name, as where the changefeed routes it."""
    n, partition = rows["partitions"][0].as_py(), np.asarray(rows["partition"]).astype(np.int64)
    value, told = hash_of(rows, "index-value", given)
    own = zlib.crc32(given.hashed_name(*(rows[c][0].as_py() for c in TABLE[1:])).encode())
    if (crc := name_hashed(value[told] ^ own, partition[told], n)) is not None:
        return f"index-value{OF_NAME}{crc}"
    each = (c for size in range(1, len(names) + 1) for c in combinations(range(len(names)), size))
    some, lies = list(islice(each, OTHER_NAMES)), lies.astype(np.int64)
    for chosen in some:
        value = np.bitwise_xor.reduce(cells[:, chosen], axis=1)
        if (crc := name_hashed(value, lies, n, tried=len(some))) is not None:
            return f"{COLUMN}{AND.join(names[i] for i in chosen)}{OF_NAME}{crc}"
    return None


def tried_up_to(columns: int) -> int:
    """Of how many columns the combinations are that are tried on a table with so many columns."""
    total, size = 0, 1
    while size < columns and total + comb(columns, size + 1) <= COMBINATIONS:
        size += 1
        total += comb(columns, size)
    return size


def columns_of(rows: pa.Table) -> tuple[list[str], list[str], pa.ChunkedArray]:
    """Names of the columns of rows of one layout, of the key, and the checksums."""
    return *names_in(rows["layout"][0].as_py()), rows["column_crcs"]


def names_in(layout: str | None) -> tuple[list[str], list[str]]:
    """Names of the columns of rows with such a layout, and of the key."""
    names, _, keys = (layout or ",,").rpartition(",,")
    split = [[n.replace("\x1f", ",") for n in part.split(",")] if part else [] for part in (names, keys)]
    return split[0], split[1]


def named_columns(rule: str, names: Collection[str]) -> list[str]:
    """The columns that a rule names: one, whose name may hold a comma, or several."""
    listed = rule.removeprefix(COLUMN).partition(OF_NAME)[0]
    return [listed] if listed in names else listed.split(AND)


def hash_of(rows: pa.Table, rule: str, given: GivenRules, *, flavour: Flavour = "new") -> tuple[Ints, Bools]:
    """TiCDC's partition hash of rows of one table and layout, and whether it is known: modulo the number of partitions
    it is where a rule puts them.
    """
    names, keys, crcs = columns_of(rows)
    if flavour == "classic" and rule == "index-value" and keys and pc.any(pc.is_null(pc.list_flatten(crcs))).as_py():
        rule = COLUMN + AND.join(keys)  # where a NULL counts
    every = np.ones(rows.num_rows, dtype=bool)
    rule, _, name = rule.partition(OF_NAME)
    own = given.hashed_name(*(rows[c][0].as_py() for c in TABLE[1:]))
    table = int(name) & _MASK if name else zlib.crc32(own.encode())
    if rule == "table":
        return np.full(rows.num_rows, table), every
    if rule in ("ts", "index-value"):
        column = rows["commit_ts" if rule == "ts" else "key_crc"]
        value, told = np.asarray(column.fill_null(0)), np.asarray(column.is_valid())
        return (value, told) if rule == "ts" else ((value & _MASK) ^ table, told & (value >> 32 > 0))
    return xored(table, crcs, names, named_columns(rule, names), flavour)


def xored(
    table: int, crcs: pa.ChunkedArray, names: Sequence[str], wanted: Iterable[str], flavour: Flavour
) -> tuple[Ints, Bools]:
    """A table's hash with the hashes of the wanted columns, and whether it is known; ``names``: of ``crcs``."""
    value, told = np.full(len(crcs), table), np.asarray(crcs.is_valid())
    for name in wanted:
        if name in names:
            # a NULL leaves the new hash alone, and is the text null in the classic one
            of_null = zlib.crc32(f"{name}null".encode()) if flavour == "classic" else 0
            crc = np.asarray(pc.list_element(crcs, names.index(name)).fill_null(of_null))
            value, told = value ^ crc, told & (crc != UNKNOWN)
    return value, told


def n_values(n: int, recorded: int) -> int:
    """Of how many values a rule by n partitions explains one by chance; where it divides, of the recorded ones."""
    return n if n % recorded else n // recorded


def _telling(value: Ints, rule: str, n: int, recorded: int) -> Ints:
    """The part of values that shows n partitions: a TSO's logical part shows whether half of them is all."""
    times = n_values(n, recorded)
    return value & tso.LOGICAL_MASK if rule == "ts" and times < n and times.bit_count() == 1 else value


def seen_bits(values: Ints) -> int:
    """A bit for each of up to 63 different values."""
    bits = 1 << bucket_of(pa.array(values, pa.int64()), SEEN_BITS).astype(np.int64)
    return int(np.bitwise_or.reduce(bits, initial=0))
