"""One's own data in a notebook: name where it is, see what it is, read it or a part of it, open every panel on it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, RLock
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets
from pyspark.sql import SparkSession

from ticdc_lab.answers import complete_to
from ticdc_lab.audit.contradicted import with_rules_noted
from ticdc_lab.dispatch.sweep import compile_beside
from ticdc_lab.engine import choose, is_active, is_sail, session
from ticdc_lab.errors import ContractError, TiCDCLabError
from ticdc_lab.events.sample import Sample
from ticdc_lab.figures.selecting import Selection
from ticdc_lab.log import Log
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.survey import Found, survey
from ticdc_lab.widgets.linking import Linked
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.problem import Problem
from ticdc_lab.widgets.source_bar import SourceBar, SourceLine
from ticdc_lab.widgets.state import StateError, as_text, checked, frozen, parsed, read_state, state_of, values_of
from ticdc_lab.widgets.tab_pages import OpenPanels, TabPages
from ticdc_lab.widgets.tabs import TABS
from ticdc_lab.widgets.under_way import UnderWay
from ticdc_lab.widgets.watch_panel import watch_panel

if TYPE_CHECKING:
    from ticdc_lab.watch.running import Watch

# What a workbench shows as a small JSON object: its source, the open tab, what is chosen, every panel's controls.


NAME = "workbench"
"""Of its kind, as a saved state has it."""


@dataclass(frozen=True, slots=True)
class WorkbenchView:
    """The tab that is open, what is chosen (fields of a selection), and the values of the panels that were computed."""

    tab: str
    selection: Mapping[str, Any]
    panels: Mapping[str, Mapping[str, Any]]


def saved(bench: Workbench, made_from: Mapping[str, Any] | None) -> dict[str, Any]:
    """Write down what a workbench shows: of its panels the changed ones.

    The others are made as they are. Which of them are there already depends on how fast they were computed.
    """
    panels = {name: panel.state()["value"] for name, panel in bench.panels.items() if not panel.is_as_made}
    return state_of(NAME, made_from, WorkbenchView(bench.pages.current, bench.selection.chosen(), panels))


def restored(bench: Workbench, state: Mapping[str, Any] | str | Path) -> None:
    """Show what was saved; the workbench has read its source already.

    Raises StateError: it is no state of a workbench, or has what a control cannot.
    """
    told = read_state(state)
    value = values_of(told, panel=NAME, view=WorkbenchView)
    if not (isinstance(value["tab"], str) and all(isinstance(value[name], dict) for name in ("selection", "panels"))):
        raise StateError("The state's value is none of a workbench: expected a tab's name, and selection and panels.")
    unknown = sorted({value["tab"], *value["panels"]} - set(TABS))
    if unknown:
        raise StateError(f"The state has tabs that are not known: {', '.join(unknown)}; expected {', '.join(TABS)}.")
    try:
        bench.select(Selection(**{name: frozen(v) for name, v in value["selection"].items()}))
    except TypeError as error:
        raise StateError(f"The state's selection is invalid: {error}.") from error
    for name, own in value["panels"].items():
        panel = bench.pages.panel(name)
        panel.open({**told, "panel": panel.name, "value": own})
    bench.pages.open(value["tab"])


# One's own data in a notebook: name where it is, see what it is, read it or a part of it, open every panel on it.


_IN_ROWS = {"align_items": "center", "flex_flow": "row wrap"}


class KeepBar(widgets.HBox):  # type: ignore[misc]
    """One row: save, open, and beside them how far opening is or why it cannot be.

    ``save``: called on saving. ``take``: called with the name of a file and its text.
    """

    def __init__(self, save: Callable[[], None], take: Callable[[str, str], None]) -> None:
        self._take = take
        self.save = widgets.Button(
            description="save all",
            layout={"width": "auto"},
            tooltip="download the selection and the settings of every tab, as a small JSON file",
        )
        self.upload = widgets.FileUpload(
            accept=".json",
            description="open",
            layout={"width": "auto"},
            tooltip="open a file that `save all` wrote",
        )
        self.under_way = UnderWay()
        self.save.on_click(lambda _: self._said(save))
        self.upload.observe(self._uploaded, names="value")
        super().__init__([self.save, self.upload, self.under_way], layout=_IN_ROWS)
        self.add_class("ticdc-keep")

    def _uploaded(self, change: dict[str, Any]) -> None:
        for file in change["new"]:
            self._said(partial(self._take, file["name"], bytes(file["content"]).decode("utf-8", "replace")))
            self.upload.value = ()  # so that the same file can be opened twice

    def _said(self, act: Callable[[], None]) -> None:
        self.under_way.say(None)
        try:
            act()
        except TiCDCLabError as error:
            self.under_way.say(Problem.of(error))


class Workbench(traitlets.HasTraits):
    """A text field for a source, then tabs with every panel on it, linked by what is chosen.

    Parameters
    ----------
    source
        A path, ``kafka://HOST:PORT/TOPIC``, or a table's name; None to be typed.
    spark
        The caller's session; by default one of the engine that fits the source, when it is first needed.
    sample
        What of it to read; where left out, all of it is read if that takes less than
        :data:`ticdc_lab.sources.survey.LARGE_S`, and else nothing before a choice.
    watch
        A watch that runs (:func:`ticdc_lab.watch`): a panel above the source shows it.
    how
        ``protocol``, ``source_kind``, ``schema_registry``, ``claim_check``, ``settings`` and ``options`` of
        :func:`ticdc_lab.sources.load.load`.

    Attributes
    ----------
    watching
        The panel of the watch; None without.
    selection
        What is chosen; setting it filters all panels.
    found
        What the source is; None before it was looked at.
    log
        The log that was read; None before.

    Notes
    -----
    Display the workbench. It works without a browser too: ``bench.wait()``, then ``bench.panels["watermarks"]``.
    """

    selection = traitlets.Instance(Selection)

    def __init__(
        self, source: str | None = None, spark: SparkSession | None = None, *, sample: Sample | None = None,
        watch: Watch | None = None, **how: Any,
    ) -> None:  # fmt: skip
        super().__init__(selection=Selection())
        self._spark, self._how, self._guard = spark, how, RLock()
        self._began = False
        self.found: Found | None = None
        self.log: ChangeLog | None = None
        self.bar = SourceBar(self.look, self.read)
        self.pages = TabPages(self._session)
        self.keep = KeepBar(self._offer, self._take)
        self.keep.under_way.stop.on_click(lambda _: self.pages.cancel())
        self.line = SourceLine(self._ask_another, self.keep)
        self._linked, self._idle = Linked(), Event()
        self._idle.set()
        self._folder: Path | None = None
        self._below = widgets.VBox([])
        self.watching = None if watch is None else watch_panel(watch)
        above = [] if self.watching is None else [self.watching.widget]
        self.widget = widgets.VBox([*above, self.line, self.bar, self._below])
        self.widget.add_class("ticdc-workbench")
        self.observe(lambda change: self._follow(change["new"]), names="selection")
        if source is not None:
            self.look(source, sample=sample)

    @property
    def panels(self) -> Mapping[str, Panel[Any]]:
        """The panels by the names of :data:`ticdc_lab.widgets.tabs.TABS`.

        Asking for one opens its tab and waits for it; going through them gives those that are open.
        """
        return OpenPanels(self.pages, before=self.wait)

    def look(self, source: str, *, sample: Sample | None = None) -> None:
        """Find out what a source is, and read it as :class:`Workbench` does with ``sample``."""
        self.cancel()
        self._idle.wait()
        self.bar.layout.display = None
        self._below.add_class("ticdc-stale")
        self.select(Selection())
        self.bar.put(source)
        self.bar.show(None)
        self.bar.list_folder(source)
        self._begin(
            "looking at the source", lambda: self._surveyed(source, sample), lambda: self._read_on(sample),
            engine=lambda: self._session_for(source),
        )  # fmt: skip

    def read(self, sample: Sample | None = None) -> None:
        """Read what was found, or a part of it, and open the first tab on it.

        Raises
        ------
        ContractError
            Nothing was found yet.
        ProtocolError
            A sample by time is asked of a log without commit_ts.
        """
        self._idle.wait()
        if self.found is None:
            raise ContractError(
                "No source was opened yet.", hint="Enter a source and press `preview`, or call `look(source)`."
            )
        self._begin_reading(self.found, self.found.part(sample))

    def cancel(self) -> None:
        """Stop looking or reading."""
        self.bar.under_way.cancel()

    def wait(self, timeout_s: float | None = None) -> Workbench:
        """Wait until it was looked at and read; the first tab may still be computed.

        Raises
        ------
        TiCDCLabError
            It could not be; as shown in the notebook.
        TimeoutError
            It takes longer.
        """
        if not self._idle.wait(timeout_s):
            raise TimeoutError(f"{self.bar.place.value} is still being read after {timeout_s} s.")
        if self.bar.under_way.running is not None:
            self.bar.under_way.running.wait()
        return self

    def select(self, selection: Selection) -> None:
        """Filter every panel by what was chosen."""
        self.selection = selection

    def state(self) -> dict[str, Any]:
        """Give what it shows, and how its source was read, as JSON."""
        return saved(self, None if self.log is None else self.log.made_from)

    def save(self, path: str | Path) -> None:
        """Write :meth:`state` into a file."""
        Path(path).write_text(as_text(self.state()), encoding="utf-8")

    def open(self, state: Mapping[str, Any] | str | Path) -> None:
        """Show what was saved, on the source that was read here.

        Raises
        ------
        StateError
            It is no state of a workbench, or has what a control cannot.
        """
        restored(self, state)

    def _offer(self) -> None:
        panel = self.pages.shown
        if panel is None:
            raise ContractError("Nothing is shown yet.", hint="Press `save all` when the first tab is there.")
        panel.offer(NAME, self.state())

    def _take(self, name: str, text: str) -> None:
        state = checked(parsed(text, name=name), name)
        self.keep.under_way.begin(self._session, "opening what was saved", lambda: restored(self, state))

    def close(self) -> None:
        """Stop what runs, and remove what was decoded."""
        self.cancel()
        self.keep.under_way.cancel()
        self.pages.cancel()
        self._idle.wait()
        self._keep_only(None)

    def _session(self) -> SparkSession:
        with self._guard:
            if self._spark is None:
                self._began = not is_active()
                self._spark = session(source=self.bar.place.value or None)
            return self._spark

    def _session_for(self, source: str) -> SparkSession:
        """The engine that a source needs; one begun here that cannot read it is ended, with what was on it."""
        with self._guard:
            if self._began and self._spark and is_sail(self._spark) and choose(source).engine == "spark":
                self.pages.cancel()
                self._spark.stop()
                self._spark = None
            return self._session()

    def _begin(
        self, what: str, work: Callable[[], None], then: Callable[[], None],
        engine: Callable[[], SparkSession] | None = None, **how: Any,
    ) -> None:  # fmt: skip
        self._idle.clear()
        self.bar.allow(False)

        def after() -> None:
            self.bar.allow(True)
            try:
                then()
            finally:
                if not self.bar.under_way.is_busy:
                    self._idle.set()

        self.bar.under_way.begin(engine or self._session, what, work, then=after, **how)

    def _surveyed(self, source: str, sample: Sample | None) -> None:
        self.found = None
        self.found = survey(self._session(), source, **self._how)
        self.bar.show(self.found)
        self.found.part(sample)  # what cannot be is shown, and raised by wait, as an error of looking

    def _read_on(self, sample: Sample | None) -> None:
        found, running = self.found, self.bar.under_way.running
        if found is not None and running is not None and running.state == "done" and (sample or not found.is_large):
            self._begin_reading(found, found.part(sample))

    def _begin_reading(self, found: Found, log: ChangeLog) -> None:
        compile_beside()  # what measures dispatchers is there then when its tab is opened
        folder = Path(tempfile.mkdtemp(prefix="ticdc_lab-bench-"))
        weakref.finalize(self, shutil.rmtree, str(folder), ignore_errors=True)
        self._begin(
            f"reading {log.protocol}", lambda: self._read_into(folder, log), lambda: self._drop_unless_kept(folder),
            expected_s=found.load_s, measured=log.messages_done(f"{folder}/decoded"),
        )  # fmt: skip

    def _read_into(self, folder: Path, log: ChangeLog) -> None:
        read = with_rules_noted(log.materialise(f"{folder}/decoded"))
        read.require_events()
        self._keep_only(folder)
        self.log = read
        self._linked = Linked(selection=self.selection)
        self._linked.observe(lambda change: self.select(change["new"]), names="selection")
        asked = Log(read, folder)
        self.line.say(read.source, complete_to(asked.summary_of("facts", "tables"), with_ts=False))
        self.bar.layout.display = "none"
        self._below.children = [self.pages.verdict, self._linked.bar, self.pages.widget]
        self._below.remove_class("ticdc-stale")
        self.pages.show(asked, self._linked)

    def _ask_another(self) -> None:
        self.bar.layout.display = None if self.bar.layout.display == "none" else "none"

    def _follow(self, selection: Selection) -> None:
        if self._linked.selection != selection:
            self._linked.selection = selection

    def _drop_unless_kept(self, folder: Path) -> None:
        """What was decoded before it was stopped or failed is of no use."""
        if folder != self._folder:
            shutil.rmtree(folder, ignore_errors=True)

    def _keep_only(self, folder: Path | None) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = folder

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        self.pages.verdict.is_displayed = True
        if self.pages.shown is not None:
            self.pages.verdict.follow()
        return self.widget._repr_mimebundle_(**kwargs)


def workbench(
    source: str | None = None, spark: SparkSession | None = None, *, sample: Sample | None = None,
    watch: Watch | None = None, **how: Any,
) -> Workbench:  # fmt: skip
    """Open one's own data in a notebook: a path, a topic or a table.

    Parameters
    ----------
    source, spark, sample, watch, how
        As for :class:`Workbench`.

    Returns
    -------
    Workbench
        Display it; it is read in the background.
    """
    return Workbench(source, spark, sample=sample, watch=watch, **how)
