"""Views of a run that was started from Python: on a terminal, in a notebook, or as lines."""

import html
import io
import sys
from typing import Any

from rich.console import Console

from arena.report.progress_table import ProgressState, draw

WIDTH = 110
"""Characters in a line of a notebook's view."""

MAX_LINES = 40
"""Lines of a notebook's view."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def on_terminal() -> bool:
    """Return whether standard output is the terminal of this process, on which a child can draw."""
    try:
        return sys.stdout.isatty() and sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):  # replaced by an object without a descriptor
        return False


class NotebookView:
    """The view of a terminal in an output cell, redrawn in its place."""

    def __init__(self) -> None:
        """Prepare; the output appears with the first state."""
        self._handle: Any = None

    def show(self, state: ProgressState) -> None:
        """Draw a state."""
        from IPython.display import HTML, display

        content = HTML(as_html(state))
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)


def as_html(state: ProgressState) -> str:
    """Return the view of a terminal as HTML."""
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        force_jupyter=False,  # it would display what it prints by itself
        color_system="truecolor",
    )
    console.print(draw(state, WIDTH, MAX_LINES), end="")
    code = console.export_html(inline_styles=True, code_format="{code}")
    style = "line-height:1.3;font-family:Menlo,'DejaVu Sans Mono',Consolas,monospace"
    return f'<pre style="{style}" aria-label="{html.escape(state.name)}">{code}</pre>'
