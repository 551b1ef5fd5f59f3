"""Panels that follow one choice: what is chosen in one figure filters the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import traitlets

from ticdc_lab.figures.selecting import Selection
from ticdc_lab.widgets.chosen_bar import ChosenBar


class Selecting(Protocol):
    """What can be linked: a :class:`ticdc_lab.widgets.panel.Panel`, or what behaves as one."""

    name: str
    controls: dict[str, Any]

    def select(self, selection: Selection) -> frozenset[str]:
        """Filter by what was chosen elsewhere; give the controls that stand for it."""
        ...

    def on_select(self, callback: Callable[[Selection], None]) -> None:
        """Call something with what a click means."""
        ...

    def meant(self) -> Selection | None:
        """What its controls say is chosen; None where they say nothing of the kind."""
        ...


class Linked(traitlets.HasTraits):
    """A group of panels and what is chosen in it.

    A panel is filtered by what was chosen in the others, not by what was chosen in itself, so that its figure still
    offers the other choices.

    Attributes
    ----------
    selection
        What is chosen; setting it filters all panels.
    bar
        A line that says what is chosen, controls to choose without a mouse, and a button that clears it.
    followed
        Name of each panel to the controls by which it follows what is chosen now.
    """

    selection = traitlets.Instance(Selection)

    def __init__(self, *panels: Selecting, selection: Selection | None = None) -> None:
        super().__init__(selection=selection or Selection())
        self.panels: list[Selecting] = []
        self.followed: dict[str, frozenset[str]] = {}
        self._from: dict[str, Selecting] = {}
        self.bar = ChosenBar(self._put, self.clear)
        self.observe(lambda _: self._tell(), names="selection")
        for panel in panels:
            self.add(panel)

    def add(self, panel: Selecting) -> None:
        """Link one more panel; it follows what is chosen already."""
        self.panels.append(panel)
        panel.on_select(lambda choice: self.choose(choice, by=panel))
        self.bar.offer(panel.controls)
        self._tell()

    def choose(self, choice: Selection, *, by: Selecting | None = None) -> None:
        """Choose something more, see :meth:`ticdc_lab.figures.selecting.Selection.then`.

        Parameters
        ----------
        choice
            What a click means.
        by
            The panel it was clicked in, which is not filtered by it. What its controls say stays chosen when it is said
            again.
        """
        again = by is not None and choice == by.meant() and choice.chosen().items() <= self.selection.chosen().items()
        after = self.selection if again else self.selection.then(choice)
        for name in choice.chosen():
            self._from.pop(name, None)
            if by is not None:
                self._from[name] = by
        self.selection = after

    def clear(self) -> None:
        """Choose nothing."""
        self.selection = Selection()

    def _put(self, field: str, value: Any) -> None:
        """What a control of the bar says."""
        self._from.pop(field, None)
        self.selection = replace(self.selection.wide(), **{field: value})

    def _tell(self) -> None:
        chosen = self.selection.chosen()
        self._from = {name: panel for name, panel in self._from.items() if name in chosen}
        self.followed = {}
        defects: list[Exception] = []
        for panel in self.panels:
            own = [name for name, source in self._from.items() if source is panel]
            try:
                followed = panel.select(replace(self.selection, **dict.fromkeys(own)))
            except Exception as error:  # the panel shows it; the others follow all the same
                defects.append(error)
                continue
            self.followed[panel.name] = self.followed.get(panel.name, frozenset()) | followed
        self.bar.say(self.selection, self.followed)
        if defects:
            raise defects[0]


def linked(*panels: Selecting, selection: Selection | None = None) -> Linked:
    """Link panels, so that what is chosen in one figure filters the others.

    Parameters
    ----------
    panels
        Of logs or of simulators; each takes of a choice what it has controls for.
    selection
        What is chosen at the beginning.

    Returns
    -------
    Linked
        Display its ``bar`` above the panels.
    """
    return Linked(*panels, selection=selection)
