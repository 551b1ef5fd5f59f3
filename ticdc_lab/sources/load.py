"""From a recorded topic to the events table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from ticdc_lab.codecs import detect
from ticdc_lab.codecs.known import BOUNDS, Bounds
from ticdc_lab.codecs.table_file import DEFAULTS, StorageSettings
from ticdc_lab.engine.workers import require_workers_once
from ticdc_lab.errors import ProtocolError
from ticdc_lab.sources import open_source
from ticdc_lab.sources.change_log import ChangeLog, Origin
from ticdc_lab.sources.decoding import known_of, table_versions

SAMPLE = 256
"""Messages looked at to tell the protocol."""


def load(
    spark: SparkSession,
    source: str,
    *,
    protocol: str = "auto",
    source_kind: str = "auto",
    schema_registry: str | None = None,
    claim_check: str | None = None,
    settings: StorageSettings = DEFAULTS,
    options: Mapping[str, str] | None = None,
    bounds: Bounds = BOUNDS,
) -> ChangeLog:
    """Load a recorded topic, one in Kafka, or a folder that TiCDC's storage sink wrote.

    Looks at up to 256 messages to tell the protocol, and through a log in the simple protocol for the versions of its
    tables; everything else is lazy.

    Parameters
    ----------
    spark
        The caller's session; :func:`ticdc_lab.engine.sessions.session` makes a local one.
    source
        A capture file (JSON Lines, plain or gzip, or Parquet), a folder of them, a Delta table of messages, a folder
        of the storage sink, or ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC]``, which is read from the earliest message
        to the latest of now.
    protocol
        One of :data:`ticdc_lab.codecs.PROTOCOLS`, or ``auto``: told from the bytes.
    source_kind
        ``capture``, ``parquet``, ``delta``, ``storage``, ``kafka``, or ``auto``: told from what is there;
        ``table`` has to be said: ``source`` then names one that the session knows.
    schema_registry
        For avro: the registry's URL (asked by the workers, once for each schema), or a file of schemas
        (:func:`ticdc_lab.codecs.schema_registry.read_schemas`).
    claim_check
        The folder (a path, or a URL that pyarrow reads, such as ``s3://..``) that large messages were put in. Without
        it they are marked ``claim-check-missing`` and hold their keys only.
    settings
        Of a storage folder: what its files do not say (delimiter, quote, null text, ..).
    options
        Settings of the source by name, for Kafka as Spark's connector has them: ``kafka.security.protocol``,
        ``kafka.sasl.jaas.config``, ``startingOffsets``. Their values are in no error's text.
    bounds
        How much a message may become before it goes to the quarantine as ``too-large``.

    Returns
    -------
    ChangeLog
        Frames ``messages``, ``events`` and ``quarantine``.

    Raises
    ------
    SourceError
        There is nothing to read at ``source``, its broker cannot be read from, or the file of schemas cannot be read.
    ProtocolError
        The protocol cannot be told or is unknown.
    SetupError
        The session is the caller's own, and its Python workers cannot run this package.

    References
    ----------
    docs/contracts.md; docs/reading.md.

    Examples
    --------
    >>> found = load(spark, "data/messages_canal-json-tidb_small.jsonl.gz")
    >>> found.protocol, found.events.where("kind = 'row'").count()
    ('canal-json', 2101)
    """
    require_workers_once(spark)
    opened = open_source(spark, source, kind=source_kind, settings=settings, options=options, line=bounds.line)
    known = known_of(schema_registry, claim_check, bounds)
    told = opened.told or detect(opened.sample(SAMPLE), protocol=protocol, source=source, known=known)
    if opened.told and protocol not in ("auto", told.protocol):
        raise ProtocolError(f"{source}: expected {protocol}, found {told.protocol}.", hint="Leave --protocol auto.")
    if told.protocol == "simple":
        known = replace(known, tables=table_versions(opened, known))
    origin = Origin(source, protocol, source_kind, schema_registry, claim_check, settings, dict(options or {}))
    return ChangeLog(
        opened.name, told.protocol, told.has_commit_ts, opened.messages, known=known, origin=origin,
        left_out=opened.left_out, _source=opened,
    )  # fmt: skip
