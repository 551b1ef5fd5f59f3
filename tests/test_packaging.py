"""What is installed: one set of versions in three files, and a wheel that needs nothing beside it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ticdc_lab.engine.environment import JAVA_MIN
from ticdc_lab.errors import SetupError
from ticdc_lab.report import supplied

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETS = {
    "requirements.lock": ("desk", "checkout"),
    "requirements-spark.lock": ("spark", "checkout", "dev", "docs"),
}
"""The extras that each lock pins, beside what the package needs everywhere."""

ENVIRONMENTS = {"environment.yml": "requirements.lock", "environment-spark.yml": "requirements-spark.lock"}
each_lock = pytest.mark.parametrize("lock", SETS)
each_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def text_of(lock: str) -> str:
    """A lock as it is written."""
    return (ROOT / lock).read_text(encoding="utf-8")


def pins(lock: str) -> list[Requirement]:
    """The lines of a lock."""
    return [Requirement(line.rstrip(" \\")) for line in text_of(lock).splitlines() if re.match(r"[a-z]", line)]


def asked(lock: str) -> list[Requirement]:
    """All that the project asks for, in the set that this lock pins."""
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {extra for extras in SETS.values() for extra in extras}
    return [Requirement(r) for r in (*PROJECT["dependencies"], *(r for e in SETS[lock] for r in extras[e]))]


def needed_by(requirement: Requirement) -> list[Requirement]:
    """What an installed distribution asks for in turn, on any platform."""
    try:
        lines = metadata.requires(requirement.name) or ()
    except metadata.PackageNotFoundError:  # of another platform
        return []
    needs = [Requirement(line) for line in lines]
    extras = {canonicalize_name(extra) for extra in requirement.extras}
    return [r for r in needs if (found := _extra(r)) is None or found in extras]


def _extra(requirement: Requirement) -> str | None:
    found = re.search(r"extra == ['\"]([^'\"]+)", str(requirement.marker or ""))
    return canonicalize_name(found[1]) if found else None


def reached(requirements: list[Requirement]) -> set[str]:
    """The names of everything that is needed for these."""
    seen: set[str] = set()
    names: set[str] = set()
    while requirements:
        requirement = requirements.pop()
        names.add(canonicalize_name(requirement.name))
        key = f"{canonicalize_name(requirement.name)}[{','.join(sorted(requirement.extras))}]"
        if key not in seen:
            seen.add(key)
            requirements += needed_by(requirement)
    return names


def misfits(requirements: list[Requirement], lock: list[Requirement]) -> list[str]:
    """Requirements that are not pinned, or in a version that they do not allow."""
    versions = {name: [p for p in lock if canonicalize_name(p.name) == name] for name in map(_name, requirements)}
    return [
        str(r)
        for r in requirements
        if not versions[_name(r)] or not all(next(iter(p.specifier)).version in r.specifier for p in versions[_name(r)])
    ]


def _name(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


@each_lock
def test_the_lock_fits_the_project(lock: str) -> None:
    """Everything that is asked for is pinned, in a version that the project allows, and each pin has its hashes."""
    assert misfits(asked(lock), pins(lock)) == []
    assert len(re.findall(r"^[a-z].* \\\n    --hash=sha256:", text_of(lock), re.M)) == len(pins(lock))
    assert misfits([Requirement("numpy<2"), Requirement("nothing-such")], pins(lock)) == ["numpy<2", "nothing-such"]


@each_lock
def test_the_lock_holds_nothing_else(lock: str) -> None:
    """Each pin is there because something that the project asks for needs it."""
    assert {_name(pin) for pin in pins(lock)} - reached(asked(lock)) == set()
    assert "numba" in {_name(pin) for pin in pins(lock)} - reached([Requirement("click")]), "a planted pin must be seen"


@each_lock
def test_the_lock_names_no_place(lock: str) -> None:
    """Where packages come from is the user's affair: no host, no folder."""
    assert not re.search(r"://|^-|@ |file:", text_of(lock), re.M)


def test_both_locks_pin_the_same_versions() -> None:
    """What is common has one version; what is not are Spark or its client, which share a folder, and our own tools."""
    light, full = ({str(pin): _name(pin) for pin in pins(lock)} for lock in SETS)
    assert light.keys() - full == {"pyspark-client==4.2.0"}
    of_spark, of_tools = (
        reached([Requirement(r) for e in extras for r in PROJECT["optional-dependencies"][e]])
        for extras in (("spark",), ("dev", "docs"))
    )
    more = {full[pin] for pin in full.keys() - light}
    assert {"pyspark", "delta-spark", "py4j"} <= more <= of_spark | of_tools


@each_environment
def test_conda_gives_what_the_lock_pins(name: str) -> None:
    """``conda env create`` brings a Python that the project allows, what the lock pins, and a Java only with Spark."""
    conda = conda_of(name)
    *own, pip = conda["dependencies"]
    versions = dict(line.partition("=")[::2] for line in own)
    assert set(versions) == {"python", "pip"} | ({"openjdk"} if "spark" in name else set())
    assert versions["python"] in Requirement(f"python{PROJECT['requires-python']}").specifier
    assert int(versions.get("openjdk", JAVA_MIN)) >= JAVA_MIN
    assert pip == {"pip": [f"-r {ENVIRONMENTS[name]}"]}
    assert conda["channels"] == ["conda-forge"]


@each_environment
def test_the_lock_serves_the_python_of_conda(name: str) -> None:
    """No marker of a pin leaves out what that Python needs."""
    dependencies, lock = conda_of(name)["dependencies"], ENVIRONMENTS[name]
    version = next(line for line in dependencies if str(line).startswith("python=")).partition("=")[2]
    environment = {"python_version": version, "python_full_version": f"{version}.0", "sys_platform": "linux"}
    there = [pin for pin in pins(lock) if pin.marker is None or pin.marker.evaluate(environment)]
    assert misfits(asked(lock), there) == []


def conda_of(name: str) -> dict[str, Any]:
    """One of the environment files; each shows by itself how it is used."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    assert f"conda env create -f {name} && conda activate {found['name']} && pip install" in text
    return found


def test_the_wheel_holds_the_package_its_notebooks_and_its_samples(installed: Path) -> None:
    """All that is tracked of the three folders, and nothing of tests or benchmarks; 8 MB at most."""
    [wheel] = installed.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "ticdc_lab", "data", "notebooks"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tracked = {re.sub(r"^(data|notebooks)/", r"ticdc_lab/_\1/", name) for name in listed.stdout.splitlines()}
    assert {name for name in tracked if (ROOT / name.replace("ticdc_lab/_", "")).exists()} <= names
    assert {name.split("/")[0] for name in names} <= {"ticdc_lab", f"ticdc_lab-{PROJECT['version']}.data"}
    assert wheel.stat().st_size < 8 << 20


SHOWN = """
import json, sys, ticdc_lab
from ticdc_lab.report import supplied
copied = supplied.copy_out(sys.argv[1])
print(json.dumps([ticdc_lab.__file__, str(supplied.samples()), str(copied)]))
"""


def alone(installed: Path, folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder, with the installed package before any other."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_notebooks_and_samples_come_with_an_installed_package(installed: Path, tmp_path: Path) -> None:
    """They are copied out byte by byte, beside each other; nothing is written to where the package is."""
    before = sorted(installed.rglob("*"))
    done = alone(installed, tmp_path, "-c", SHOWN, "mine")
    assert done.returncode == 0, done.stderr
    package, samples, copied = json.loads(done.stdout)
    assert package == str(installed / "ticdc_lab/__init__.py")
    assert samples == str(installed / "ticdc_lab/_data")
    assert (tmp_path / copied) == tmp_path / "mine/notebooks"
    for name in ("notebooks", "data"):
        for path in filter(Path.is_file, (ROOT / name).rglob("*")):
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
                assert (tmp_path / "mine" / path.relative_to(ROOT)).read_bytes() == path.read_bytes()
    assert sorted(installed.rglob("*")) == before


def test_the_command_of_an_installed_package(installed: Path, tmp_path: Path) -> None:
    """``ticdc-lab`` is there with its version, and shows in words that it overwrites nothing."""
    command = installed / "bin/ticdc-lab"
    assert PROJECT["version"] in alone(installed, tmp_path, command, "--version").stdout
    (tmp_path / "mine/notebooks").mkdir(parents=True)
    done = alone(installed, tmp_path, command, "notebooks", "mine")
    assert done.returncode == 2 and "mine/notebooks is there already" in done.stderr
    assert not (tmp_path / "mine/data").exists()


def test_a_package_without_its_samples_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In words, with what to do."""
    monkeypatch.setattr(supplied, "_PACKAGE", tmp_path / "site-packages/ticdc_lab")
    with pytest.raises(SetupError, match="was installed without its data"):
        supplied.samples()


@pytest.mark.soak
def test_a_wheel_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    """As a user: a new environment, ``pip install WHEEL`` with all it needs, the demo, a notebook; no checkout near."""
    [wheel] = installed.parent.glob("*.whl")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{pin}\n" for pin in pins("requirements-spark.lock")))
    bin_, own = tmp_path / "env/bin", {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run(sys.executable, "-m", "venv", tmp_path / "env")
    run(bin_ / "python", "-m", "pip", "install", "--quiet", "--constraint", constraints, f"{wheel}[spark]")
    run(bin_ / "python", "-m", "pip", "check")
    run(bin_ / "ticdc-lab", "demo", "--out", "out/report.html")
    assert "plotly" in (tmp_path / "out/report.html").read_text(encoding="utf-8")
    copied = Path(run(bin_ / "ticdc-lab", "notebooks", "mine").strip())
    notebook = sorted((tmp_path / copied).glob("*.ipynb"))[0]
    run(bin_ / "jupyter", "nbconvert", "--execute", "--to", "html", notebook)
    assert notebook.with_suffix(".html").stat().st_size > 100_000


LIGHT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("py4j", "delta") or name == "pyspark.core":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import pyspark, ticdc_lab
assert not hasattr(pyspark, "SparkContext"), "this is to be what pyspark-client gives"
for module in pkgutil.walk_packages(ticdc_lab.__path__, "ticdc_lab."):
    try:
        module.name.endswith("__main__") or importlib.import_module(module.name)
    except ImportError as error:
        print(module.name)
"""

ONLY_WITH_SPARK = {
    "ticdc_lab.consumer.sinks.delta",
    "ticdc_lab.engine.classic",
    "ticdc_lab.engine.first_queries",
    "ticdc_lab.lake.ingest",
    "ticdc_lab.lake.tables",
}
"""What starts Spark, and what writes Delta tables with it; all else is there with its client alone."""


def test_the_light_set_has_all_but_what_is_sparks(tmp_path: Path) -> None:
    """Every other module can be imported without py4j, Delta's Python package and the classic half of PySpark."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == ONLY_WITH_SPARK
