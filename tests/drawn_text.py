"""What a figure draws, as text: what a click means is kept in it with the true names, and is never drawn."""

from __future__ import annotations

import plotly.graph_objects as go


def drawn_text(fig: go.Figure) -> str:
    """All text of a figure, as plotly receives it before JSON escapes."""
    return str(go.Figure(fig).update_traces(meta=None).to_plotly_json())
