"""What a block event does to the tables that are replicated (BarrierEvent.scheduleBlockEvent)."""

from __future__ import annotations

from ticdc_lab.simulate.scheduler.v4 import operators, spans
from ticdc_lab.simulate.scheduler.v4.barrier_event import BarrierEvent, tables_of
from ticdc_lab.simulate.scheduler.v4.control import Control


def tables_changed(control: Control, event: BarrierEvent, at_us: int) -> operators.Stepped:
    """Drop tables with their dispatchers, take up new ones as absent, put tables into other schemas."""
    because = f"the {'syncpoint' if event.key.is_sync_point else 'DDL'} at {event.key.block_ts}"
    dropped = [
        key
        for table in tables_of(control.spans, event.state.need_dropped_tables)
        for key in spans.of_table(control.spans, table)
    ]
    control, outputs = operators.tasks_removed(control, dropped, at_us, f"{because} drops it")
    new = [table.table_id for table in event.state.need_added_tables]
    known, changes = spans.added(control.spans, new, event.key.block_ts, at_us, f"{because} adds it")
    schemas = known.schemas.mutate()
    schemas.update({table.table_id: table.schema_id for table in event.state.need_added_tables})
    schemas.update({change.table_id: change.new_schema_id for change in event.state.updated_schemas})
    control = control._replace(spans=known._replace(schemas=schemas.finish()))
    return control, outputs + changes
