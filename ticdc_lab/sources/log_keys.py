"""Handle keys that only a log's own DDL define: found in one pass, or put into files that were decoded without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.codecs import Known, decoder
from ticdc_lab.codecs.handles import READ, Handles, handles_of, unnamed, with_handles
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.codecs.log_types import DDL_ROWS
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DECODED
from ticdc_lab.facts.definitions import TableName
from ticdc_lab.sources.opening import Source
from ticdc_lab.sources.parquet import groups_in, written_to

WITH_DDL = frozenset({"canal-json", "canal", "avro", "maxwell"})
"""Of the protocols that name a primary key alone those whose messages may be DDL; csv's are schema files."""

_NO_DDL = b'"isDdl":false'
"""In no DDL of canal-json, as texts in JSON have no bare quotes; most messages are put aside by it, a fifth of a
regular expression's time."""


def finder(protocol: str, known: Known) -> Callable[[Batches], Batches]:
    """The function over batches of messages that gives the DDL among them (:data:`DDL_ROWS`)."""
    decode = decoder(protocol, images=False, known=known)

    def run(batches: Batches) -> Batches:
        may_be = (b.filter(may_be_ddl(b["value"].cast(pa.binary()), protocol)) for b in batches)
        for events in decode(some for some in may_be if some.num_rows):
            found = events.filter(pc.fill_null(pc.equal(events["kind"], "ddl"), False)).select(DDL_ROWS.names)
            yield found.cast(arrow_schema(DDL_ROWS))

    return run


def may_be_ddl(values: pa.Array, protocol: str) -> pa.Array:
    """Which messages may be DDL; packed ones are not looked into."""
    first = pc.binary_slice(values, 0, 1)
    if protocol == "canal-json":
        return pc.or_(pc.not_equal(first, b"{"), pc.invert(pc.match_substring(values, _NO_DDL)))
    return pc.equal(first, b"\x01") if protocol == "avro" else pc.is_valid(values)


def handles_in(source: Source, protocol: str, known: Known) -> Handles:
    """The handle keys that the DDL of a log define: its schema files in a folder, else one pass over its messages."""
    if source.decode is not None and protocol in NAME_A_PRIMARY_KEY:
        decode, form = source.decode(False), arrow_schema(DDL_ROWS)

        def ddl(files: Batches) -> Batches:
            for events in decode(batch.filter(pc.equal(batch["kind"], "schema")) for batch in files):
                yield events.filter(pc.equal(events["kind"], "ddl")).select(form.names).cast(form)

        return handles_of(source.found(ddl, form), protocol=protocol)
    if source.decode is not None or protocol not in WITH_DDL:
        return {}
    return handles_of(source.gathered(finder(protocol, known), DDL_ROWS), protocol=protocol)


def put_into(files: Sequence[Path], handles: Handles) -> tuple[TableName, ...]:
    """Rewrite files of :data:`ticdc_lab.events.schema.DECODED` with rows of such tables; give which."""
    done = set[TableName]()
    for path in files if handles else ():
        if not any(len(unnamed(group, handles)) for group in groups_in(path, READ)):
            continue
        draft = path.with_name(f"_keys-{path.name}")
        with written_to(draft) as write:
            for group in groups_in(path):
                keyed, named = with_handles(group, handles)
                write(keyed.cast(arrow_schema(DECODED)))
                done |= named
        draft.replace(path)
    return tuple(sorted(done))


def words_of(tables: Sequence[TableName]) -> tuple[str, ...]:
    """A sentence about these tables, if there are any."""
    some = ", ".join(".".join(name) for name in tables[:_NAMED])
    more, s = ", .." * (len(tables) > _NAMED), "s" * (len(tables) != 1)
    return (_KEYED.format(n=len(tables), s=s, some=some, more=more),) if tables else ()


_NAMED = 3
_KEYED = (
    "Messages of {n} table{s} without a primary key ({some}{more}) name no key; the one used is the not-null unique "
    "index that the log's DDL define."
)
