"""``arena page``: look at runs in a browser."""

import argparse
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from arena.common.errors import ConfigError
from arena.common.text import count_of

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
    catalogue = Catalogue(arguments.runs, root)
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
    print(f"{shown or 'the runs to come'}: {server.link} (Ctrl-C ends the page, not the runs)", flush=True)
    if arguments.open:
        webbrowser.open(server.link)
    server.serve()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "arena page",
        description="Look at runs in a browser, while they go on and afterwards. The page only reads.",
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="a run directory, or a directory of several (default: runs/)"
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
