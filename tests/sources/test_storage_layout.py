"""Paths of the storage sink's layout, old and new, and the order in which its files are read."""

from __future__ import annotations

from random import Random

import pytest

from ticdc_lab.events import FILE_BITS, is_first
from ticdc_lab.settings import UNKNOWN
from ticdc_lab.sources.storage import Listed, files_table, listed
from ticdc_lab.sources.storage_layout import Refused, StoragePlace, Stream, named_by_index, place_of, streams_of

V = 470603993574539264
N = f"{1:020d}"


def data(path: str, **settings: str) -> tuple[str, str, int, str, str, str, int]:
    """What a data file's path shows."""
    p = place_of(path, **settings)  # type: ignore[arg-type]
    assert isinstance(p, StoragePlace) and p.kind == "data", p
    return p.schema, p.table, p.version, p.partition, p.date, p.dispatcher, p.number


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"s/t/{V}/CDC{N}.csv", ("s", "t", V, "", "", "", 1)),
        (f"s/t/{V}/2024/CDC{N}.csv", ("s", "t", V, "", "2024", "", 1)),
        (f"s/t/{V}/2024-02/CDC{N}.json", ("s", "t", V, "", "2024-02", "", 1)),
        (f"s/t/{V}/2024-02-03/CDC000007.csv", ("s", "t", V, "", "2024-02-03", "", 7)),
        (f"s/t/{V}/127/2024-02-03/CDC{N}.csv", ("s", "t", V, "127", "2024-02-03", "", 1)),
        (f"s/t/{V}/127/CDC_9f_{N}.csv", ("s", "t", V, "127", "", "9f", 1)),
        (f"s/a/b/{V}/CDC{N}.csv", ("s", "a/b", V, "", "", "", 1)),
        (f"s/a/{V}/b/{V}/127/2024-02/CDC{N}.csv", ("s", f"a/{V}/b", V, "127", "2024-02", "", 1)),
        (f"s/a/7/{V}/CDC{N}.csv", ("s", "a/7", V, "", "", "", 1)),
        (f"s/{V}/{V}/127/CDC{N}.csv", ("s", str(V), V, "127", "", "", 1)),
        (f"7/{V}/{V}/CDC{N}.csv", ("7", str(V), V, "", "", "", 1)),
        (f"s/2024-01/{V}/CDC{N}.csv", ("s", "2024-01", V, "", "", "", 1)),
        (f"s/meta/{V}/CDC{N}.csv", ("s", "meta", V, "", "", "", 1)),
        (f"112/{V}/CDC{N}.csv", ("112", "", V, "", "", "", 1)),
        (f"112/{V}/127/2024/CDC_9f_{N}.csv", ("112", "", V, "127", "2024", "9f", 1)),
    ],
)
def test_a_path_says_the_place_of_a_data_file(path: str, said: object) -> None:
    """Table and table-id layouts, partition folders, three date separators and dispatcher ids are distinguished."""
    assert data(path) == said


def test_folders_of_a_name_with_a_slash_are_read_beside_metadata_alone() -> None:
    """Without that file they may lie below another folder: the reason names both."""
    paths = [f"a/s/t/{V}/CDC{N}.csv", f"a/s/t/meta/schema_{V}_0000000001.json"]
    found = listed([Listed(path, 1) for path in (*paths, "metadata")], "/x", UNKNOWN)
    assert not found.refused and {p.version_key for p in found.places} == {("a", "s/t", V), ("", "", 0)}
    refused = listed([Listed(path, 1) for path in paths], "/x", UNKNOWN).refused
    assert [r.path for r in refused] == paths
    assert all(r.error_class == "unknown-file" and "has no file `metadata`" in r.reason for r in refused)


def test_schema_and_index_files_of_ticdc_before_v6_5_3_lie_beside_the_data() -> None:
    """The folder is the table version's; the index is about the data in its own folder."""
    schema, index = place_of(f"s/t/{V}/schema.json"), place_of(f"s/t/{V}/2024-02-03/CDC.index")
    assert isinstance(schema, StoragePlace) and schema.version_key == ("s", "t", V) and schema.checksum is None
    assert isinstance(index, StoragePlace) and index.folder == f"s/t/{V}/2024-02-03"
    assert isinstance(place_of("s/t/7/schema.json"), Refused)


def test_four_digits_are_a_partition_where_the_changefeed_has_no_date() -> None:
    """The setting date-separator decides what a folder of four digits is."""
    assert data(f"s/t/{V}/2024/CDC{N}.csv", date_separator="none")[3:5] == ("2024", "")
    assert data(f"s/t/{V}/2024/CDC{N}.csv", date_separator="year")[3:5] == ("", "2024")


@pytest.mark.parametrize(
    "path",
    ["notes.txt", f"s/t/{V}/CDC{N}.csv.tmp", f"s/t/x/CDC{N}.csv", f"CDC{N}.csv", f"s/CDC{N}.csv", "s/metadata",
     f"s/t/meta/schema_{V}_12.json", f"s/t/{V}/CDC١.csv", f"s/t/{1 << 63}/CDC{N}.csv", f"a/s/t/7/CDC{N}.csv",
     "schema_1_0123456789.json", "\udc80"],
)  # fmt: skip
def test_what_the_sink_does_not_write_is_an_unknown_file(path: str) -> None:
    """A name outside the layout is refused with a reason that shows it."""
    found = place_of(path)
    assert isinstance(found, Refused) and found.error_class == "unknown-file" and found.reason


@pytest.mark.parametrize("tail", ["", "/0", "/2024-01-02", "/meta"])
def test_a_folder_that_dots_dropped_is_refused_with_this_reason(tail: str) -> None:
    """TiCDC writes ``./t/VERSION`` and ``s/./VERSION``: a file system has one folder there, which is no table id."""
    refused = place_of(f"s/{1 << 50}{tail}/CDC{'.index' if tail == '/meta' else N + '.csv'}")
    assert isinstance(refused, Refused) and "a schema or table is named `.`" in refused.reason
    assert isinstance(place_of(f"12/{1 << 50}/CDC{N}.csv"), StoragePlace)


@pytest.mark.parametrize("name", ["CDC000001.CSV", "cdc000001.csv", "Cdc000001.Csv"])
def test_a_name_in_another_case_is_refused_with_its_own(name: str) -> None:
    """Some tools and file systems change it."""
    refused = place_of(f"s/t/{1 << 50}/{name}")
    assert isinstance(refused, Refused) and "mv {} CDC000001.csv" in refused.reason


def test_an_index_file_beside_the_data_names_its_own() -> None:
    """TiCDC of v6.5.2 and v7.0 put it there."""
    folder, name = f"s/t/{1 << 50}", "CDC000003.json"
    for index in (f"{folder}/CDC.index", f"{folder}/meta/CDC.index"):
        assert named_by_index(index, f"{name}\n".encode()) == place_of(f"{folder}/{name}")


def test_a_file_that_somebody_compressed_is_refused_with_what_unpacks_it() -> None:
    """As a life cycle of a bucket does, or who sends a folder."""
    found = place_of(f"s/t/{V}/CDC{N}.csv.gz")
    assert isinstance(found, Refused) and found.reason.endswith(
        "unpack such files: find FOLDER -name '*.gz' -exec gunzip {} +"
    )
    assert isinstance(other := place_of("notes.gz"), Refused) and "compressed" not in other.reason


@pytest.mark.parametrize("path", [f"s/../t/{V}/CDC{N}.csv", f"../{V}/CDC{N}.csv", f"s//{V}/CDC{N}.csv", "./metadata"])
def test_a_path_that_could_leave_the_folder_is_refused(path: str) -> None:
    """Names such as ``..``, which an object store can hold, never become a place."""
    found = place_of(path)
    assert isinstance(found, Refused) and found.error_class == "unsafe-path"


def test_files_are_read_by_version_date_and_number_whatever_the_order_of_the_listing() -> None:
    """Reading order comes from the names; each table, partition and dispatcher is a stream, schema files the first."""
    wanted = [
        f"s/t/{V}/2023-12-31/CDC{2:020d}.csv",
        f"s/t/{V}/2024-01-01/CDC{1:020d}.csv",
        f"s/t/{V}/2024-01-01/CDC{10:020d}.csv",
        f"s/t/{V + 5}/2023-01-01/CDC{1:020d}.csv",
    ]
    others = [f"s/t/{V}/127/CDC{N}.csv", f"s/t/{V}/CDC_9f_{N}.csv", f"r/t/{V}/CDC{N}.csv",
              f"s/t/meta/schema_{V + 5}_0000000001.json", f"s/meta/schema_{V}_0000000002.json"]  # fmt: skip
    for seed in range(5):
        paths = wanted + others
        Random(seed).shuffle(paths)
        streams = streams_of(p for p in map(place_of, paths) if isinstance(p, StoragePlace))
        assert list(streams) == [Stream(), Stream("r", "t"), Stream("s", "t"), Stream("s", "t", "127"),
                                 Stream("s", "t", "9f")]  # fmt: skip
        assert [p.path for p in streams[Stream("s", "t")]] == wanted
        assert [p.version for p in streams[Stream()]] == [V, V + 5]


@pytest.mark.parametrize(("number", "begins"), [(1, True), (5, False), (10**19, False)])
def test_files_before_the_first_that_is_there_expired(number: int, begins: bool) -> None:
    """They are numbered from 1, so what is listed first need not be where the stream begins."""
    paths = [Listed(f"s/t/{V}/CDC{n:020d}.csv", 1) for n in (number, number + 1)]
    ranks = files_table(listed(paths, "/x", UNKNOWN))["rank"].to_pylist()
    assert ranks[1] == ranks[0] + 1 and is_first(ranks[0] << FILE_BITS) == begins
