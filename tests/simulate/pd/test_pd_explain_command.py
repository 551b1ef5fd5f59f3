"""``ticdc-lab pd explain``: a cluster from pd-ctl's JSON, what PD would do, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ticdc_lab.cli import main


@pytest.fixture
def printed(tmp_path: Path) -> list[str]:
    """Four stores, one of them offline; three regions, two with a peer on it."""
    stores = [
        {"store": {"id": i, "labels": [], "state_name": "Offline" if i == 4 else "Up", "last_heartbeat": 10**18},
         "status": {"capacity": "1TiB", "available": "900GiB", "used_size": "100GiB", "region_count": 2}}
        for i in range(1, 6)
    ]  # fmt: skip
    regions = []
    for n, held in enumerate(((1, 2, 3), (1, 2, 4), (4, 2, 3)), 1):
        peers = [{"id": 10 * n + s, "store_id": s} for s in held]
        regions.append({"id": n, "start_key": f"{n}", "end_key": f"{n + 1}", "peers": peers, "leader": peers[0],
                        "approximate_size": 96, "approximate_keys": 10**6})  # fmt: skip
    for name, told in (("stores", stores), ("regions", regions)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"count": len(told), name: told}))
    return ["pd", "explain", "--stores", f"{tmp_path}/stores.json", "--regions", f"{tmp_path}/regions.json"]


def told(arguments: list[str]) -> Any:
    """What the command shows as JSON."""
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_cluster_is_told_by_what_happens_to_how_many_regions(printed: list[str]) -> None:
    """Two regions have a peer on the offline store; the third is left alone."""
    found = told(printed)
    outcomes = {(o["group"], o["does"]): o["here"] for o in found["outcomes"]}
    assert outcomes == {
        ("with a peer on a store that leaves", "replace-rule-offline-peer"): 2,
        ("as they should be", ""): 0,
    }
    assert found["sentence"].startswith("replace-rule-offline-peer for about 2 regions")
    assert [a["asked"] for a in found["answers"]] == ["balance-leader", "balance-region"]
    held = "add-peer limits of stores 1, 3, 5"
    assert found["forecast"][0]["sentence"] == f"store 4 leaves: 2 peers, 3 s at best ({held})"
    assert found["missing"].startswith("Missing: 3 given regions do not cover all keys")


def test_one_region_is_told_with_every_candidate(printed: list[str]) -> None:
    """The operator, and for each store the filter that refused it or its score."""
    found = told([*printed, "--region", "2"])
    assert found["sentence"].startswith("region 2: patrol: replace-rule-offline-peer, mv peer: store [4] to ")
    (rules,) = [a for a in found["answers"] if a["asked"] == "rule checker"]
    assert [r["store"] for r in rules["rows"] if r["outcome"] == "rejected"] == [1, 2, 4]
    assert {r["store"] for r in rules["rows"] if r["test"] == "region score"} == {3, 5}
    assert rules["operators"][0]["operator"] == "move-peer"


def test_it_reads_as_text_too(printed: list[str]) -> None:
    """A table of outcomes; a region's reasons are cut to --lines."""
    done = CliRunner().invoke(main, printed)
    assert "as they should be" in done.output and "balance-region: " in done.output
    done = CliRunner().invoke(main, [*printed, "--region", "2", "--lines", "1"])
    assert "more: --lines 0 shows them all" in done.output


def test_what_cannot_be_read_or_is_not_there_ends_with_a_sentence(printed: list[str], tmp_path: Path) -> None:
    """Exit code 2, no trace."""
    done = CliRunner().invoke(main, [*printed, "--region", "77"])
    assert done.exit_code == 2 and "no region 77 among 3" in done.output
    (tmp_path / "stores.json").write_text("{}")
    done = CliRunner().invoke(main, printed)
    assert done.exit_code == 2 and "expected a list of objects" in done.output and "Traceback" not in done.output


def test_stores_that_are_not_chosen_and_regions_that_stay_have_their_reasons(printed: list[str]) -> None:
    """Grouped and counted, the most frequent first; not only with --region."""
    found = told(printed)["not_chosen"]
    offline = "removing: the store is being taken offline"
    assert {"who": "store 4", "as_what": "balance-region target", "times": 1, "why": offline, "example": 0} in found
    assert [n["times"] for n in found] == sorted((n["times"] for n in found), reverse=True)
    assert "Not chosen, and why:" in CliRunner().invoke(main, printed).output


def test_a_folder_is_enough(printed: list[str], tmp_path: Path) -> None:
    """--from finds the files by what they contain; nothing at all shows what to give."""
    (tmp_path / "regions.json").rename(tmp_path / "whatever.txt")
    found = told(["pd", "explain", "--from", str(tmp_path)])
    assert found["regions"] == 3 and found["sentence"].startswith("replace-rule-offline-peer")
    done = CliRunner().invoke(main, ["pd", "explain", "--stores", str(tmp_path / "stores.json")])
    assert done.exit_code == 2 and "--regions is missing" in done.output


def test_a_file_that_is_not_there_is_looked_for_in_its_folder(tmp_path: Path) -> None:
    """Whichever of the three it is: the hint names no command that prints another one."""
    missing = str(tmp_path / "config.json")
    done = CliRunner().invoke(main, ["pd", "explain", "--stores", missing, "--regions", missing, "--config", missing])
    assert done.exit_code == 2 and f"ls {tmp_path}" in done.stderr, done.stderr
