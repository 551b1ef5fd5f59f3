"""What decoding needs of its log beside each message: schemas, table versions, types, and keys that only DDL define."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ticdc_lab.codecs import Known, decoder, log_types
from ticdc_lab.codecs.detection import could_be_keys
from ticdc_lab.codecs.event import Malformed
from ticdc_lab.codecs.handles import READ, Handles, handles_of, unnamed, with_handles
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.codecs.known import BOUNDS, Bounds
from ticdc_lab.codecs.log_types import DDL_ROWS
from ticdc_lab.codecs.registry import FRAMED
from ticdc_lab.codecs.schema_registry import Registry, read_registered, require_url
from ticdc_lab.codecs.simple_tables import COUNTED_TABLES, TABLES, contradictions, finder, tables_of
from ticdc_lab.errors import SourceError
from ticdc_lab.errors.whole_files import local_path
from ticdc_lab.events.arrays import Batches
from ticdc_lab.events.schema import DECODED
from ticdc_lab.facts.definitions import TableName
from ticdc_lab.sources.pieces import Source
from ticdc_lab.sources.stored import groups_in, written_to

Gathered = Callable[[Callable[[Batches], Batches], StructType], pa.Table]
"""What a function gives for the messages of a log, as :meth:`ticdc_lab.sources.pieces.Source.gathered`."""


def known_of(schema_registry: str | None, claim_check: str | None, bounds: Bounds = BOUNDS) -> Known:
    """The caller's arguments for decoding; they and errors are as of :func:`ticdc_lab.sources.load.load`."""
    if claim_check is not None and (folder := local_path(claim_check)) is not None and not folder.is_dir():
        raise SourceError(
            f"The claim-check folder {claim_check} does not exist.",
            hint="Name the folder of the changefeed's claim-check storage: --claim-check FOLDER",
        )
    if schema_registry is None:
        return Known(claim_check=claim_check, bounds=bounds)
    if (file := local_path(schema_registry)) is not None:
        schemas, subjects = read_registered(str(file))
        return Known(schemas=schemas, subjects=subjects, claim_check=claim_check, bounds=bounds)
    return Known(registry_url=require_url(schema_registry), claim_check=claim_check, bounds=bounds)


def with_table_versions(gathered: Gathered, known: Known) -> tuple[Known, tuple[str, ...]]:
    """The table versions of a log in the simple protocol: few, as there are DDL, however long the log is."""
    found = gathered(finder(known), COUNTED_TABLES).group_by(TABLES.names).aggregate([("n", "sum")])
    rows = found.rename_columns({"n_sum": "n"}).to_pylist()
    return replace(known, tables=tables_of(rows)), contradictions(rows)


def with_log_types(gathered: Gathered, sample: pa.Table, known: Known) -> tuple[Known, tuple[str, ...]]:
    """What decoding debezium needs of its log, and what is assumed of it: one pass.

    How bytes are written shows in the values of the sample, where no setting gives it. Messages that name their types
    do not show the digits of a fraction.
    """
    known = replace(known, types=log_types.types_of(gathered(log_types.finder(known), log_types.DDL_ROWS)))
    return log_types.with_binary(sample, known)


def with_schemas(gathered: Gathered, protocol: str, known: Known) -> Known:
    """The schemas of a registry that a log names, asked for here: workers of the embedded engine have no network."""
    schemas = dict(known.schemas)
    registry = Registry(replace(known, schemas=schemas))
    for schema_id in pc.unique(gathered(log_types.schema_ids(known, protocol), log_types.SCHEMA_IDS)["id"]).to_pylist():
        with suppress(Malformed):  # its messages are refused for that
            registry.schema(schema_id)
    return replace(known, schemas=schemas)


def learned(gathered: Gathered, sample: pa.Table, protocol: str, known: Known) -> tuple[Known, tuple[str, ...]]:
    """What decoding a protocol needs of its log beside each message, and what of it is a guess, a sentence each."""
    if protocol == "simple":
        return with_table_versions(gathered, known)
    if protocol in FRAMED:
        known = with_schemas(gathered, protocol, known) if known.registry_url else known
        if protocol == "debezium-avro":
            found = gathered(log_types.finder(known, protocol), log_types.DDL_ROWS)
            known = replace(known, types=log_types.types_of(found))
        return replace(known, registry_url=""), could_be_keys(sample, known)
    return with_log_types(gathered, sample, known) if protocol == "debezium" else (known, ())


WITH_DDL = frozenset({"canal-json", "canal", "avro", "maxwell"})
"""Of the protocols that name a primary key alone those whose messages may be DDL; csv's are schema files."""

_NO_DDL = b'"isDdl":false'
"""In no DDL of canal-json, as texts in JSON have no bare quotes; most messages are put aside by it, a fifth of a
regular expression's time."""


def ddl_finder(protocol: str, known: Known) -> Callable[[Batches], Batches]:
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
    return handles_of(source.gathered(ddl_finder(protocol, known), DDL_ROWS), protocol=protocol)


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
