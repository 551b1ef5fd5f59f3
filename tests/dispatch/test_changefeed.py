"""Changefeed files: read as TiCDC reads them, refused as it refuses them, and written so that they read the same."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from conftest import golden
from hypothesis import given
from hypothesis import strategies as st

from ticdc_lab.dispatch.changefeed import Changefeed, changefeed_from_toml, read_changefeed
from ticdc_lab.dispatch.rules import Rule, rule_of, rules_from_config
from ticdc_lab.errors import DispatchError

FILE = """
case-sensitive = true
memory-quota = 1073741824

[filter]
rules = ['*.*', '!test.*']

[sink]
protocol = "open-protocol"
dispatchers = [
    {matcher = ['shop.orders', "shop.`a.b`"], partition = "index-value", index = "uk", topic = "{schema}_{table}"},
    {matcher = ['shop.*'], dispatcher = "ts"},
    {matcher = ['*.*'], partition = "columns", columns = ["a", "b"]},
]
delete-only-output-handle-key-columns = true

[sink.kafka-config]
output-raw-change-event = true
"""


def test_a_file_becomes_rules_and_settings(tmp_path: Path) -> None:
    """Every setting that decides where a row goes is read; the rest is named."""
    path = tmp_path / "c.toml"
    path.write_text(FILE)
    feed = read_changefeed(path, sink_uri="kafka://h:9092/main?partition-num=6&protocol=canal-json")
    assert feed == Changefeed(
        rules=(
            Rule(("shop.orders", "shop.`a.b`"), "index-value", "uk", (), "{schema}_{table}"),
            Rule(("shop.*",), "ts"),
            Rule(("*.*",), "columns", "", ("a", "b")),
        ),
        case_sensitive=True, protocol="canal-json", partitions=6, default_topic="main", raw=True,
        delete_only_handle_key=True,
    )  # fmt: skip
    assert feed.notes == ("The filter is not applied: every table of the log is dispatched.",)


def test_the_golden_configurations_survive_a_round_trip() -> None:
    """The rules of every golden topic are the same after they were written and read."""
    for name in ("config_small.json", "config_bank.json"):
        for config in json.loads(golden(name).read_text()):
            feed = Changefeed(rules_from_config(config["dispatch_rules"]), partitions=config["partitions"])
            assert changefeed_from_toml(feed.to_toml()) == feed


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_RULES = st.builds(
    Rule,
    st.lists(st.sampled_from(["*.*", "!a.b", 'x."q""r"', "表.`t\t`", "/^a\\d/.*"]), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["table", "ts", "index-value", "columns", "default"]),
    _TEXT,
    st.lists(_TEXT, max_size=3).map(tuple),
    st.sampled_from(["", "x", "{schema}_{table}"]),
)


@given(
    st.builds(
        Changefeed,
        rules=st.lists(_RULES, max_size=4).map(tuple),
        case_sensitive=st.booleans(),
        protocol=st.sampled_from([None, "canal-json", "simple"]),
        partitions=st.none() | st.integers(1, 500),
        raw=st.booleans(),
        only_updated_columns=st.booleans(),
        delete_only_handle_key=st.booleans(),
    )
)
def test_what_is_written_reads_the_same(feed: Changefeed) -> None:
    """Any changefeed is the same after a round trip, no matter what its names hold."""
    text = feed.to_toml()
    tomllib.loads(text)
    assert changefeed_from_toml(text) == feed


def test_old_values_can_be_off_in_two_ways() -> None:
    """The classic switch changes dispatch too; the protocol's own switch only what is written."""
    classic = changefeed_from_toml("enable-old-value = false")
    assert (classic.old_value, classic.dispatch_old_value) == (False, False)
    mine = changefeed_from_toml('[sink]\nprotocol = "open-protocol"\n[sink.open]\noutput-old-value = false')
    assert (mine.old_value, mine.dispatch_old_value) == (False, True)
    assert changefeed_from_toml('[sink]\nprotocol = "csv"').old_value is False
    other = changefeed_from_toml('[sink]\nprotocol = "debezium-avro"\n[sink.debezium]\noutput-old-value = false')
    put_in = "kafka-config.codec-config]\navro-include-before-value = true"
    avro = [changefeed_from_toml(f'[sink]\nprotocol = "avro"\n[sink.{more}') for more in (put_in, "open]")]
    assert not other.old_value and [feed.old_value for feed in avro] == [True, False]
    for feed in (classic, mine, other, *avro):
        assert changefeed_from_toml(feed.to_toml()) == feed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = = 1", "no TOML"),
        ("sink = 3", r"expected a table \[sink\]"),
        ("case-sensitive = 1", "case-sensitive to be of type bool"),
        ('[sink]\ndispatchers = "x"', "expected dispatchers"),
        ("[sink]\ndispatchers = [{matcher = 'a.b'}]", "matcher to be of type list"),
        ("[sink]\ndispatchers = [{matcher = [1]}]", "texts in matcher"),
        ("[sink]\ndispatchers = [{matcher = ['a']}]", "the text: The matcher 'a' has no '.'"),
        ("[sink]\ndispatchers = [{matcher=['*.*'], partition='ts', dispatcher='ts'}]", "cannot be configured both"),
        ("[sink]\ndispatchers = [{matcher=['*.*'], topic='{db}'}]", "ErrKafkaTopicExprInvalid"),
        ("[sink]\nprotocol='avro'\ndispatchers = [{matcher=['*.*'], topic='{table}'}]", "ErrKafkaTopicExprInvalid"),
        ("[sink]\nprotocol='csv'\ndelete-only-output-handle-key-columns = true", "CSV protocol always"),
        ("[sink.kafka-config]\npartition-num = 0", "invalid partition num"),
        ("force-replicate = true\n[sink]\nprotocol = 'avro'", "refuses force-replicate"),
        ("sink-uri = 'kafka://h/t?partition-num=many'", "partition-num='many'"),
        (
            "sink-uri = 'pulsar://h/t'\n[sink]\ndispatchers = [{matcher=['a.*'], partition='k'}]",
            r"'k' is no dispatcher: to Pulsar, .* the key of each message of a\.\*",
        ),
    ],
)
def test_what_ticdc_refuses_is_refused(text: str, error: str) -> None:
    """A file TiCDC would not take is an error that shows why."""
    with pytest.raises(DispatchError, match=error):
        changefeed_from_toml(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(DispatchError, match=r"nowhere\.toml"):
        read_changefeed(tmp_path / "nowhere.toml")


def test_the_first_rule_that_matches_serves_a_table() -> None:
    """As the router does; what no rule matches is served by default."""
    rules = changefeed_from_toml(FILE).rules
    assert [rule_of(rules, "shop", t).partition for t in ("ORDERS", "a.b", "x")] == ["index-value", "index-value", "ts"]
    assert rule_of(rules, "Shop", "orders", case_sensitive=True).partition == "columns"
    assert rule_of(rules[:1], "a", "b").partition == "default"
