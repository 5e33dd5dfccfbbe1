"""``arena page``: look at runs in a browser."""

import argparse
import json
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from arena.common.errors import ConfigError
from arena.common.text import count_of
from arena.config.resumed import load_stored_config
from arena.records.player_names import split_run

if TYPE_CHECKING:
    from arena.page.runs import Catalogue

ROOT = Path("runs")
"""Directory of runs if neither a run nor a root is named."""


def main(argv: Sequence[str]) -> int:
    """Run ``arena page``; return the exit code.

    Raises:
      ConfigError: there is no such run, an option is wrong, or the port cannot be opened.
    """
    arguments = _parser().parse_args(argv)
    from arena.page.runs import Catalogue

    root = arguments.root
    if root is None and not arguments.runs:
        root = ROOT
    named = [split_run(text) for text in arguments.runs]
    catalogue = Catalogue([path for path, _ in named], root)
    count = len(catalogue.sources())
    if not count and root is None:
        raise ConfigError("expected a run directory, such as runs/quickstart")
    if arguments.save is not None:
        from arena.page.saved import write_saved

        size = write_saved(catalogue, arguments.save)
        print(f"{arguments.save}: {count_of(count, 'run')}, {size / 1e6:.1f} MB; it needs only a browser")
        return 0
    from arena.page.server import Server, token_for

    server = Server(catalogue, arguments.host, arguments.port, token_for(arguments.host, arguments.token_file))
    shown = ", ".join(catalogue.sources()) if count <= 3 else f"{count} runs"
    print(
        f"{shown or 'the runs to come'}: {server.link}{_place(catalogue, named)} (Ctrl-C ends the page, not the runs)",
        flush=True,
    )
    if arguments.open:
        webbrowser.open(server.link + _place(catalogue, named))
    server.serve()
    return 0


def _place(catalogue: "Catalogue", named: Sequence[tuple[Path, str]]) -> str:
    """Return the part of the address that shows a player's curves, if the only run is named with a player.

    Raises:
      ConfigError: the run has no such player.
    """
    if len(named) != 1 or not named[0][1]:
        return ""
    from arena.evaluation.players import policy_of

    player = named[0][1].partition("@")[0]
    for name, source in catalogue.sources().items():
        policy_of(load_stored_config(source.run.config), player)
        return "#/curves?" + urlencode({"run": name, "player": json.dumps([player])})
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena page",
        description="Look at runs in a browser, while they go on and afterwards. The page only reads.",
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a run directory, or a directory of several (default: runs/); runs/x:blue opens at the curves of a player",
    )
    parser.add_argument("--root", type=Path, metavar="DIR", help="list all runs below this directory, new ones too")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, for this machine and ssh -L); any other one needs the token "
        "of the link that is printed",
    )
    parser.add_argument("--port", type=int, default=0, help="port (default: 0, any free one)")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE.html",
        help="write the page with its data into one file, for a browser without server and network, and end",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser of this machine")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="require the token in this file, on the loopback too: for machines with several users, and behind a "
        "proxy; the file is created if it does not exist",
    )
    return parser
