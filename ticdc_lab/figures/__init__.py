"""Figures: small pandas frames to :class:`ticdc_lab.figures.figure.Figure`; pure, and without Spark.

Each title is the finding in words, and one sentence under the figure names what to look for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.figures.checkpoint import (
        grafana_panel,
        grafana_panels,
        variant_comparison,
        watermark_curves,
        why_stuck,
    )
    from ticdc_lab.figures.column_families import column_families, column_families_stepped
    from ticdc_lab.figures.consumer_lanes import consumer_lanes, consumer_lanes_stepped
    from ticdc_lab.figures.counterexamples import counterexample, is_drawn
    from ticdc_lab.figures.ddl_timeline import ddl_timeline
    from ticdc_lab.figures.findings import violations
    from ticdc_lab.figures.fleet import assignment_gantt, fleet_map, fleet_map_stepped
    from ticdc_lab.figures.in_notebook import notebook
    from ticdc_lab.figures.invariant_curve import invariant_curve
    from ticdc_lab.figures.key_heat import key_heat
    from ticdc_lab.figures.lane_layout import Order, moments
    from ticdc_lab.figures.listing import beside, listing, row_life
    from ticdc_lab.figures.load import dispatch_over_time, partition_load, partition_rows, skew_curves
    from ticdc_lab.figures.log_spans import log_spans
    from ticdc_lab.figures.look import CONFIG
    from ticdc_lab.figures.matrices import anomaly_matrix, fidelity_matrix, guarantee_matrix, semantics_matrix
    from ticdc_lab.figures.operator_timeline import operator_timeline
    from ticdc_lab.figures.ownership_gantt import ownership_gantt
    from ticdc_lab.figures.partition_change import partition_change, procedure_faults
    from ticdc_lab.figures.pd_run import moved_between, pd_answers, time_left, two_futures, why_nothing
    from ticdc_lab.figures.pipeline_picture import pipeline_picture, pipeline_picture_stepped
    from ticdc_lab.figures.queue_curves import queue_curves
    from ticdc_lab.figures.region_map import label_topology, region_map, region_map_stepped
    from ticdc_lab.figures.scan_and_stream import scan_and_stream
    from ticdc_lab.figures.scheduling_player import scheduling_at, scheduling_stepped
    from ticdc_lab.figures.schema_timeline import job_timeline, schema_timeline
    from ticdc_lab.figures.sequence_diagram import sequence_diagram
    from ticdc_lab.figures.stepped import stepped, stepped_by
    from ticdc_lab.figures.store_bars import store_bars
    from ticdc_lab.figures.theme import themed, titled
    from ticdc_lab.figures.transaction_spans import transaction_spans
    from ticdc_lab.figures.watch_curves import watch_curves
    from ticdc_lab.figures.watermark_ladder import lag, watermark_ladder
    from ticdc_lab.figures.watermark_tree import watermark_levels, watermark_tree, watermark_tree_stepped
    from ticdc_lab.figures.why_table import why_table

__all__ = [
    "CONFIG", "Order", "anomaly_matrix", "assignment_gantt", "beside", "column_families", "column_families_stepped",
    "consumer_lanes", "consumer_lanes_stepped", "counterexample", "ddl_timeline", "dispatch_over_time",
    "fidelity_matrix", "fleet_map", "fleet_map_stepped", "grafana_panel", "grafana_panels", "guarantee_matrix",
    "invariant_curve", "is_drawn", "job_timeline", "key_heat", "label_topology", "lag", "listing", "log_spans",
    "moments", "moved_between", "notebook", "operator_timeline", "ownership_gantt", "partition_change",
    "partition_load", "partition_rows", "pd_answers", "pipeline_picture", "pipeline_picture_stepped",
    "procedure_faults", "queue_curves", "region_map", "region_map_stepped", "row_life", "scan_and_stream",
    "scheduling_at", "scheduling_stepped", "schema_timeline", "semantics_matrix", "sequence_diagram", "skew_curves",
    "stepped", "stepped_by", "store_bars", "themed", "time_left", "titled", "transaction_spans", "two_futures",
    "variant_comparison", "violations", "watch_curves", "watermark_curves", "watermark_ladder", "watermark_levels",
    "watermark_tree", "watermark_tree_stepped", "why_nothing", "why_stuck", "why_table",
]  # fmt: skip

lazily(__name__, __all__)
