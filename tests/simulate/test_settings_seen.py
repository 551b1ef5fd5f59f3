"""Settings whose effect no shipped scenario shows: each decides whether a sentence about a run holds."""

from __future__ import annotations

import pytest

from ticdc_lab.simulate.scenario import scenario_from_text

SEEN = {
    "sorter_memory_rows": ("100000", "50", """
model: pipeline
until: 6s
cluster: {captures: 1, tables: 2}
load: {rows_per_s: 200, until: 4s}
settings: {capture: {sorter_memory_rows: VALUE}}
events: [{at: 1s, long_transaction: 1, hold: 2s}]
assert: [{always: rows on disk = 0}]
"""),
    "consumer": ("rows", "transactions", """
model: pipeline
until: 5s
cluster: {captures: 2, tables: 2}
load: {rows_per_s: 60, rows: 3, until: 4s}
settings: {downstream: {consumer: VALUE, dispatcher: tidb-rowid}}
events: [{at: 2s, link: partition-1, to: consumer, delay: 3s}]
assert: [{within: 2s, from: 2s, holds: rows executed > 150}]
"""),
    "prepares": ("true", "false", """
model: pd
until: 35s
cluster: {stores: [{id: 1}, {id: 2}, {id: 3}, {id: 4, later: true}], regions: 300, store_limit: 60}
settings: {prepares: VALUE}
events: [{at: 10s, start_store: store-4}]
assert: [{within: 20s, from: 12s, holds: store-4 is Preparing}]
"""),
    "duties.terms.margin": ("2500ms", "1s", """
model: ddl-service
until: 9s
cluster: {workers: 1, clusters: 1}
settings: {duties: {terms: {margin: VALUE}}}
events:
  - {at: 4s, name: cut, partition: [ddl-service-node-1], from: [pd, "tikv://cluster1:2379"], for: 5s}
assert:
  - {always: cluster1 is owned by ddl-service-node-1, from: 1s, for: 3s}
  - {within: 3s, after: cut, holds: no cluster on ddl-service-node-1}
"""),
}  # fmt: skip
"""By setting: the value with which the scenario holds, the one with which it does not, the scenario."""


@pytest.mark.parametrize("name", SEEN)
def test_a_setting_decides_what_is_seen_of_a_run(name: str) -> None:
    """With one value what the scenario defines is so, with the other it is not; all else is the same."""
    holds, fails, text = SEEN[name]
    given = [text.replace(f"{name.rpartition('.')[2]}: VALUE, ", "") if v == "null" else text for v in (holds, fails)]
    played = [scenario_from_text(t.replace("VALUE", v)) for t, v in zip(given, (holds, fails), strict=True)]
    assert [s.model.play(s).held for s in played] == [True, False]
