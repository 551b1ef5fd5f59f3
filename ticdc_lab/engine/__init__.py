"""The only room that knows which engine runs: Apache Spark, classic or Connect, or the embedded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.engine.choosing import EngineChoice, choose
    from ticdc_lab.engine.counting import counted, kept
    from ticdc_lab.engine.jvm import (
        hadoop_exists,
        hadoop_files,
        hadoop_read_text,
        hadoop_write_text,
        java_version,
        kafka_offsets,
    )
    from ticdc_lab.engine.paths import parquet_below, verbatim
    from ticdc_lab.engine.sessions import (
        engine_of,
        has_jvm,
        is_active,
        is_sail,
        is_several_machines,
        parallelism,
        session,
    )

__all__ = [
    "EngineChoice", "choose", "counted", "engine_of", "hadoop_exists", "hadoop_files", "hadoop_read_text",
    "hadoop_write_text", "has_jvm", "is_active", "is_sail", "is_several_machines", "java_version", "kafka_offsets",
    "kept", "parallelism", "parquet_below", "session", "verbatim",
]  # fmt: skip

lazily(__name__, __all__)
