"""Notebooks as pages: every plot without a network, sliders that move, what needs a kernel reported, what it is made
of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT, golden
from nbconvert import HTMLExporter
from offline import opened
from summaries import summary
from test_report import parsed
from traitlets.config import Config
from whatifs import what_if

from ticdc_lab import answers, figures
from ticdc_lab.errors import SourceError
from ticdc_lab.figures.figure import Bar, Figure
from ticdc_lab.figures.in_notebook import PAGE_MARK
from ticdc_lab.figures.in_notebook import notebook as notebook_page_needs
from ticdc_lab.figures.theme import finish
from ticdc_lab.report import render
from ticdc_lab.report.notebook_page import PLOTLY, WIDGET, _is_there, offline, parameters
from ticdc_lab.report.notebook_run import find, notebook_page, with_parameters
from ticdc_lab.sources.provenance import provenance

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CDN = '<script src="https://cdn.example/plotly.js"></script>'


def fig(n: int = 1) -> Figure:
    """A figure with a finding."""
    return finish(Figure(Bar(x=["a", "b"], y=[n, 2 * n])), title=f"Finding {n}", note="Look here.")


def shown(drawn: Figure, *more: str) -> Any:
    """An output as a kernel gives it, with other forms of it."""
    forms = {WIDGET: {"model_id": "x", "version_major": 2, "version_minor": 0}, "text/html": "<b>old</b>"}
    data = {PLOTLY: json.loads(drawn.to_json()), "text/plain": "a figure"} | {m: forms[m] for m in more}
    return nbformat.v4.new_output("display_data", data=data)


def notebook(*outputs: Any, code: str = "source = 'log.jsonl'\nseed, of = 7, ('a', 2)\nlater = len(source)") -> Any:
    """A notebook that was executed, with a cell for each output."""
    first = nbformat.v4.new_markdown_cell(
        "# What is <it>?\n\n[next](02_next.ipynb#there) ![x](https://far.example/x.png)"
    )
    given = nbformat.v4.new_code_cell(f"{code}\n")
    given.metadata["tags"] = ["parameters"]
    cells = [nbformat.v4.new_code_cell("import ticdc_lab", outputs=[o]) for o in outputs]
    return nbformat.v4.new_notebook(
        cells=[first, given, *cells], metadata={"widgets": {"state": "https://unpkg.example"}}
    )


def exported(nb: Any, folder: Path) -> str:
    """The page of a notebook that lies in a folder."""
    where = {"metadata": {"path": str(folder), "name": "it"}}
    return str(HTMLExporter(config=offline(Config())).from_notebook_node(nb, resources=where)[0])


def outside(page: str) -> list[str]:
    """What a page would fetch."""
    loads = [("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("object", "data")]
    return [
        str(a[k]) for t, a in parsed(page).tags for tag, k in loads if t == tag and str(a.get(k, "")).startswith("http")
    ]


def test_a_page_has_every_figure_once_and_asks_for_nothing(tmp_path: Path) -> None:
    """Also the ones of panels, with a sentence; not plotly.js a second time, nor a widget's state."""
    bundle = nbformat.v4.new_output(
        "display_data", data={"text/html": "<script>plotly.js " + "x" * 600_000 + "</script>"}
    )
    dead = nbformat.v4.new_output("display_data", data={WIDGET: {"model_id": "x"}, "text/plain": "IntSlider()"})
    page = exported(notebook(shown(fig(), "text/html"), shown(fig(2), WIDGET), bundle, dead), tmp_path)
    assert page.count('class="figure"') == page.count('class="plotly-graph-div"') == 2
    text = parsed(page).text
    assert text.count("need a running kernel: open the notebook") == 1 and text.count("This part needs a running") == 1
    assert len(page) < 6_000_000 and "<b>old</b>" not in page and "unpkg.example" not in page
    assert outside(page) == []


def test_a_page_holds_plotly_once_and_packed_figures(tmp_path: Path) -> None:
    """What the notebook's own first cell brought is the page's already; a figure of a megabyte takes a tenth of it."""
    own = nbformat.v4.new_output("execute_result", data={"text/html": notebook_page_needs()._repr_html_()})
    large = finish(Figure(Bar(x=list(range(100_000)), y=[1] * 100_000)), title="Large", note="Look here.")
    page = exported(notebook(own, shown(large)), tmp_path)
    assert PAGE_MARK in own.data["text/html"] and PAGE_MARK not in page
    assert len(large.to_json()) > 700_000
    assert len(page) < 2_000_000


def test_the_title_is_the_page_s_and_links_lead_to_pages(tmp_path: Path) -> None:
    """The heading is not reported twice; a picture from elsewhere is a link, which is not followed by itself."""
    page = exported(notebook(), tmp_path)
    assert page.count("What is &lt;it&gt;?") == 2, "in the title and in the heading"
    hrefs = [a.get("href") for t, a in parsed(page).tags if t == "a"]
    assert "02_next.html#there" in hrefs and "https://far.example/x.png" in hrefs
    assert outside(page) == []


def test_a_page_ends_with_parameters_and_the_files_they_name(tmp_path: Path) -> None:
    """Plain values only; a notebook that reports it itself is not reported twice."""
    (tmp_path / "log.jsonl").write_text("abc")
    text = parsed(exported(notebook(), tmp_path)).text
    assert parameters(notebook()) == {"source": "log.jsonl", "seed": 7, "of": ("a", 2)}
    assert (
        "What this was made from" in text and "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" in text
    )
    said = nbformat.v4.new_output("execute_result", data={"text/html": provenance()._repr_html_()})
    assert "What this was made from" not in parsed(exported(notebook(said), tmp_path)).text


def test_other_notebooks_stay_as_nbconvert_makes_them(tmp_path: Path) -> None:
    """What an installed package shows nbconvert is for notebooks that import it."""
    config = offline(Config())
    config.SelfContained.every = False
    where = {"metadata": {"path": str(tmp_path), "name": "it"}}
    page = HTMLExporter(config=config).from_notebook_node(notebook(), resources=where)[0]
    assert "jp-Notebook" in page and "What this was made from" not in page


def test_the_wheel_tells_nbconvert_where_its_template_is() -> None:
    """What ``jupyter nbconvert`` of an environment reads names things that are there."""
    shared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "shared-data"
    ]
    told = json.loads(next((ROOT / s).read_text() for s in shared if s.endswith("jupyter_nbconvert_config.json")))
    template = next(
        ROOT / s for s in shared if shared[s].endswith(f"templates/{told['HTMLExporter']['template_name']}")
    )
    assert (template / "index.html.j2").is_file()
    exporter = HTMLExporter(config=Config(told), extra_template_basedirs=[str(template.parent)])
    page = exporter.from_notebook_node(notebook(shown(fig())), resources={"metadata": {"path": ".", "name": "it"}})[0]
    assert "What this was made from" in page and outside(page) == []


def test_parameters_are_replaced_by_name_and_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path becomes whole, numbers are read; another name or type is refused in words."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").touch()
    long = "SELECT 1 + " * 100
    assert parameters(with_parameters(notebook(), {"source": long}, name="it"))["source"] == long
    assert not _is_there(tmp_path, long) and _is_there(tmp_path, "mine.jsonl") and not _is_there(tmp_path, "a\0b")
    made = with_parameters(notebook(), {"source": "mine.jsonl", "seed": "8"}, name="it")
    assert parameters(made)["source"] == str(tmp_path / "mine.jsonl") and parameters(made)["seed"] == 8
    assert made.cells[2].metadata.tags == ["injected-parameters"]
    assert parameters(with_parameters(notebook(), {"of": "[b, 3]"}, name="it"))["of"] == ("b", 3)
    wrong = {"sourc": ("x", "no parameter sourc"), "seed": ("many", "expected another int"), "of": ("[", "as YAML")}
    for given, said in (({name: value}, said) for name, (value, said) in wrong.items()):
        with pytest.raises(SourceError, match=said):
            with_parameters(notebook(), given, name="it")


def test_notebooks_are_found_by_name_and_number() -> None:
    """And nothing else is."""
    assert find("05_consumer_consistency") == find("05") == find("05_consumer_consistency.ipynb")
    with pytest.raises(SourceError, match="no notebook 99"):
        find("99")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_notebook_has_parameters_that_can_be_replaced(path: Path) -> None:
    """As plain values, so that a page can end with them."""
    assert parameters(nbformat.read(path, as_version=4))


def test_a_failed_check_is_shown_and_another_error_stops(tmp_path: Path) -> None:
    """In one kernel each, without Spark: an assert is kept in the page, a wrong name is reported with its cell."""
    file = tmp_path / "own.ipynb"
    nb = notebook(code="n = 3")
    nb.cells += [nbformat.v4.new_code_cell("assert n == 3, 'not three'")]
    nbformat.write(nb, file)
    made = notebook_page(file, tmp_path / "pages/own.html", {"n": "4"})
    assert made.failed_checks == ("assert n == 3, 'not three'",) and "not three" in parsed(made.page.read_text()).text
    nb.cells += [nbformat.v4.new_code_cell("nothing.there")]
    nbformat.write(nb, file)
    with pytest.raises(SourceError, match="NameError") as said:
        notebook_page(file, tmp_path / "own.html")
    assert "nothing.there" in said.value.hint


@pytest.mark.browser
def test_pages_live_without_a_network(tmp_path: Path) -> None:
    """Chromium draws every plot of a notebook's page and of a report, moves a slider of each, and finds no error."""
    steps = figures.stepped({str(n): fig(n) for n in range(1, 5)}, prefix="n: ", start="2")
    (tmp_path / "it.html").write_text(exported(notebook(shown(steps), shown(fig(7), WIDGET)), tmp_path))
    report = render(summary(), what_if=answers.what_if(what_if(), partitions=5), made_from=provenance())
    (tmp_path / "report.html").write_text(report)
    (tmp_path / "planted.html").write_text(report.replace("</head>", f"{CDN}</head>"))
    with opened(tmp_path / "it.html") as page:
        assert page.drawn() == (2, 2)
        assert page.move_slider("plot-2-0") == "n: 4"
        assert page.browser.execute_script("return document.getElementById('plot-2-0').data[0].y[1]") == 8
        page.browser.get((tmp_path / "report.html").as_uri())
        n = report.count('class="figure"')
        assert page.drawn() == (n, n) and n >= 9
        assert page.move_slider("plot-what-if-0") == "partitions: 128"
        others = [page.slider_of(f"plot-what-if-{n}") for n in range(1, 5) if page.has_slider(f"plot-what-if-{n}")]
        assert len(others) >= 2 and set(others) == {"partitions: 128"}, "sliders of one choice move together"
        assert page.complaints() == []
        page.browser.get((tmp_path / "planted.html").as_uri())
        assert any("cdn.example" in said for said in page.complaints()), "a page with a link to a CDN is caught"


@pytest.mark.soak
@pytest.mark.browser
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_notebook_is_a_page_that_needs_no_network(path: Path, tmp_path: Path) -> None:
    """Run, exported and opened: all plots are drawn, nothing is asked for, nothing goes wrong."""
    made = notebook_page(path, tmp_path / f"{path.stem}.html")
    assert made.failed_checks == ()
    with opened(made.page) as page:
        there, drawn = page.drawn()
        assert there == drawn >= 4
        assert page.complaints() == []


@pytest.mark.soak
def test_nbconvert_s_own_command_makes_such_a_page(tmp_path: Path) -> None:
    """With the two things installed that the wheel brings: nbconvert's template and its settings."""
    kept = ROOT / "ticdc_lab/report/nbconvert"
    (tmp_path / "share/nbconvert/templates").mkdir(parents=True)
    (tmp_path / "share/nbconvert/templates/ticdc_lab").symlink_to(kept / "ticdc_lab")
    nbformat.write(notebook(shown(fig())), tmp_path / "it.ipynb")
    told = {"JUPYTER_PATH": str(tmp_path / "share"), "JUPYTER_CONFIG_PATH": str(kept), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(tmp_path / "it.ipynb")]
    subprocess.run(command, env=os.environ | told, check=True, capture_output=True)
    page = (tmp_path / "it.html").read_text()
    assert outside(page) == [] and page.count('class="plotly-graph-div"') == 1


@pytest.mark.soak
def test_a_notebook_runs_on_another_log(tmp_path: Path) -> None:
    """The first of the set on a log of another protocol, its parameters and fingerprint in the page."""
    source = str(golden("messages_simple_small.jsonl.gz"))
    made = notebook_page("01", tmp_path / "page.html", {"source": source})
    assert source in parsed(made.page.read_text()).text
