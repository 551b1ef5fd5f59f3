"""Where change logs lie: files that hold the messages of a topic, or the topic in Kafka.

What paths alone show is in :mod:`ticdc_lab.sources.places`, which needs no library; sources themselves are in
:mod:`ticdc_lab.sources.pieces`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.errors.whole_files import local_path
    from ticdc_lab.events.schema import as_messages
    from ticdc_lab.sources.load import open_source
    from ticdc_lab.sources.pieces import Source
    from ticdc_lab.sources.places import KINDS, data_files

__all__ = ["KINDS", "Source", "as_messages", "data_files", "local_path", "open_source"]

lazily(__name__, __all__)
