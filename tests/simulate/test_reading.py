"""The reader of scenario files: sections of every model by the types of their classes, each mistake with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple

import pytest
from msgspec import Meta

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, Value, parsed, read_record
from ticdc_lab.simulate.scenario import scenario_from_text


class Pair(NamedTuple):
    """A section that is a tuple."""

    first_us: int
    second: str = "two"


class NoPair(NamedTuple):
    """A section that need not be there."""

    rest: int = 3


@dataclass(frozen=True)
class Section:
    """One field of each kind."""

    many: Annotated[int, Meta(ge=2, le=9)]
    share: Fraction = Fraction(0)
    for_us: int | None = 5
    word: Annotated[str, ReadBy(lambda value, names: value.choice(names.nodes, "a node"))] | None = None
    is_on: bool = False
    some: tuple[Pair, ...] = ()
    one_of: Literal["a", "b"] = "a"

    def refuse(self, value: Value, given: dict[str, Value]) -> None:
        """Refuse what no type shows."""
        if self.is_on and "some" not in given:
            raise given["is_on"].wrong("`some` beside it")


def section(text: str) -> Section:
    """Read a section."""
    return Reader(Names(nodes=frozenset({"north"}))).record(parsed(text, "f.yaml"), Section)


def test_a_section_is_read_by_the_types_of_its_fields() -> None:
    """Durations by their names' ending, bounds and readers beside their types, tuples, sections in lists."""
    text = "{many: 9, share: 2.5%, for: none, word: north, is_on: true, some: [{first: 1s}, {first: 0, second: x}]}"
    pairs = (Pair(1_000_000), Pair(0, "x"))
    assert section(text) == Section(9, Fraction(1, 40), None, "north", True, pairs)
    assert section("{many: 2}") == Section(2)
    assert read_record(parsed("{first: 1ms}", "f"), Pair) == Pair(1_000)
    assert read_record(None, NoPair) == NoPair()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected a field many; found none"),
        ("{many: 1}", "expected a whole number from 2 to 9 at many; found 1"),
        ("{many: 10}", "expected a whole number from 2 to 9 at many; found 10"),
        ("{many: 2, word: south}", "expected a node at word; found south"),
        ("{many: 2, some: [{second: x}]}", "expected a field first of some[0] at some[0]; found none"),
        ("{many: 2, some: {first: 1s}}", "expected a list at some"),
        ("{many: 2, one_of: c}", "expected a known value at one_of; found c"),
        ("{many: 2, is_on: true}", "expected `some` beside it at is_on; found true"),
        ("{many: 2, word: none}", ""),
    ],
)
def test_what_a_type_does_not_allow_is_told_with_its_place(text: str, message: str) -> None:
    """Where nothing may stand, ``none`` may."""
    if not message:
        assert section(text) == Section(2)
        return
    with pytest.raises(ScenarioError) as refused:
        section(text)
    assert message in refused.value.message


DDL = "model: ddl-service\nuntil: 6s\ncluster: {workers: 2, clusters: 2"
PIPELINE = "model: pipeline\nuntil: 6s\ncluster: {captures: 2, tables: 2}\nload: "
PD = "model: pd\nuntil: 20s\ncluster: {regions: 9, stores: "
MISTAKES = {
    "more unregistered than there are": (DDL + ", unregistered: 3}", 3, "a whole number from 0 to 2"),
    "a version of nobody": (DDL + ", versions: {cluster3: v7.1.0}}", 3, "a cluster; found cluster3"),
    "what is no version": (DDL + ", versions: {cluster2: new}}", 3, "a version such as v6.5.0"),
    "users who never rest": (DDL + "}\nload: {every: 0}", 4, "a time above 0 at load.every"),
    "a setting of a tuple": (DDL + "}\nsettings: {duties: {terms: {ttl: 3}}}", 4, "at settings.duties.terms.ttl"),
    "a variable that is none": (
        DDL + "}\nevents: [{at: 1s, set_global: cluster1/tidb-1, variable: x, value: 3}]", 4, "there is no variable x"),
    "a variable of a server": (
        DDL + "}\nevents: [{at: 1s, set_global: cluster1/tidb-1, variable: tidb_enable_ddl, value: ON}]", 4,
        "is of scope instance"),
    "a time that is left empty": (
        DDL + "}\nevents: [{at: 1s, leave: ddl-service-node-1, back: }]", 4, "a value at events[0].back; found none"),
    "a value that counts nothing": (
        DDL + "}\nevents: [{at: 1s, set_global: cluster1/tidb-1, variable: tidb_ddl_reorg_batch_size, value: 0}]", 4,
        "is a number above 0"),
    "a load that ends first": (PIPELINE + "{from: 3s, until: 2s}", 4, "a moment after `from`"),
    "a handle twice": (PIPELINE + "{transactions: [{at: 1s, table: 1, handles: [1, 1]}]}", 4, "each once"),
    "a table that is not there": (
        PIPELINE + "{transactions: [{at: 1s, table: 9, handles: [1]}]}", 4, "a table of the cluster at load.trans"),
    "a workload and more": (PIPELINE + "{workload: {kind: bank}, rows: 3}", 4, "a known field of load; found rows"),
    "what a workload does not say": (PIPELINE + "{workload: {seed: 1}}", 4, "a known field of load.workload"),
    "DDL of no file": (PIPELINE + "{ddl: {of: nowhere.yaml, cluster: c}}", 4, "a scenario file of the model ddl-se"),
    "a store twice": (PD + "[{id: 1}, {id: 1}]}", 3, "each id once at cluster.stores[1]; found 1 again"),
    "regions on no store": (PD + "4, on: []}", 3, "stores that are there at first at cluster.on; found []"),
    "regions on a store that is not there": (PD + "4, on: [9]}", 3, "found [9]"),
    "too few stores": (PD + "2}", 3, "at least 3 stores at first"),
    "a setting that PD has not": (PD + "4, config: {moon: full}}", 3, "a setting of PD's"),
}  # fmt: skip


def _played(text: str) -> None:
    scenario = scenario_from_text(text, "file.yaml")
    scenario.model.play(scenario, keep=False)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_section_of_any_model_is_told_with_its_line(mistake: str) -> None:
    """What was expected and where."""
    text, line, message = MISTAKES[mistake]
    with pytest.raises(ScenarioError) as refused:
        _played(text)
    assert refused.value.message.startswith(f"file.yaml:{line}: expected ")
    assert message in refused.value.message


def test_sections_of_duties_are_read() -> None:
    """Leases and versions of the service are tuples."""
    text = DDL + "}\nsettings: {duties: {terms: {ttl: 8s}, versions: {oldest: v6.0.0}}, habits: {terms: {margin: 2s}}}"
    settings = scenario_from_text(text).settings
    assert settings.duties.terms == (8_000_000, 1_000_000)
    assert settings.duties.versions == ("v8.5.0", "v6.0.0")
    assert settings.habits.terms == (5_000_000, 2_000_000)


def test_many_names_are_listed_as_ranges() -> None:
    """No kind of node is cut off from the hint."""
    nodes = ["etcd", "partition", *(f"{kind}-{n}" for kind in ("capture", "partition", "tikv") for n in range(1, 33))]
    listed = "Known: capture-1 to capture-32, etcd, partition, partition-1 to partition-32, tikv-1 to tikv-32."
    with pytest.raises(ScenarioError, match=re.escape(listed)):
        parsed("store-1", "mine.yaml").choice(nodes, "a node of the cluster")
