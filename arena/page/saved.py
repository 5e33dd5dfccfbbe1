"""A page in one file, with its data inside: it needs a browser, and neither a server nor a network."""

import base64
import getpass
import gzip
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.common.files import write_text
from arena.page.answers import Answers
from arena.page.app import STATIC
from arena.page.encoding import encode
from arena.page.episodes import ORDERS
from arena.page.runs import Catalogue

MAX_CURVES = 64
"""Number of players of a run with saved curves: first those that learn."""

MAX_EPISODES = 12
"""Number of players of a run with saved episodes."""

MAX_LOGS = 40
"""Logs of a run that are saved, the newest piece of each."""

POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""What a browser may load and run of a saved page: this script and this style sheet."""

_IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(.*?)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
_EXPORTED = re.compile(r"export\{(.*?)\};?\s*$")


def write_saved(catalogue: Catalogue, path: Path) -> int:
    """Write the page of all runs of a catalogue into an HTML file; return its size in bytes.

    Raises:
      ConfigError: there is no run, or the file cannot be written.
    """
    answers = Answers(catalogue)
    answers.refresh()
    try:
        if not answers.sources:
            raise ConfigError("--save: expected at least one run, found none")
        found = {"runs": answers.runs(), "names": answers.names()}
        found["of"] = {name: _Anonymous(name, answers).answers() for name in answers.sources}
        found["runs"] = answers.runs()  # again, now that all of them have been read
        for run in found["runs"]["runs"]:
            run["reason"] = _Anonymous(run["name"], answers).cleaned(run["reason"])
    finally:
        answers.close()
    text = html(encode(found))
    try:
        write_text(path, text)
    except OSError as error:
        raise ConfigError(f"--save: {path} cannot be written: {error.strerror}") from error
    return len(text.encode())


class _Anonymous:
    """Collects the answers about one run, without paths of this machine and names of its users.

    The configuration stays as it is: it is part of what a reader needs.
    """

    def __init__(self, run: str, answers: Answers) -> None:
        self._run, self._answers = run, answers
        directory = answers.source(run).run.path.resolve()
        user = getpass.getuser() if "USER" in os.environ or hasattr(os, "getuid") else ""
        shorter = {
            f"{directory}": run,
            f"{directory.parent}{os.sep}": "",
            f"{Path.cwd()}{os.sep}": "",
            sys.prefix: "<python>",
            sys.base_prefix: "<python>",
            str(Path(__file__).parents[2]): "<arena>",
            str(Path.home()): "~",
        }
        self._shorter = sorted(((a, b) for a, b in shorter.items() if len(a) > 1), key=lambda pair: -len(pair[0]))
        self._user = re.compile(rf"(?<=/){re.escape(user)}(?=[/\s'\":,;)]|$)") if user else None

    def cleaned(self, value: Any) -> Any:
        """Return a value with shorter paths in its texts."""
        if isinstance(value, str):
            for long, short in self._shorter:
                value = value.replace(long, short)
            return value if self._user is None else self._user.sub("~", value)
        if isinstance(value, dict):
            return {name: self.cleaned(item) for name, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            return self.cleaned(value._asdict())
        if isinstance(value, (list, tuple)):
            return [self.cleaned(item) for item in value]
        return value

    def answers(self) -> dict[str, Any]:
        """Return all answers about the run by path and parameters; of records that cannot be read, the reason."""
        try:
            return {key: self.cleaned(answer) for key, answer in self._readable()} | dict(self._files())
        except ConfigError as error:
            return {"error": str(error)} | dict(self._files())

    def _readable(self) -> Iterator[tuple[str, Any]]:
        source, run = self._answers.source(self._run), self._run
        while source.read_next():
            pass
        players = source.players()
        chosen = sorted(players, key=lambda name: not players[name]["learns"])
        yield "curves", self._answers.curves(run, chosen[:MAX_CURVES])
        yield "league", self._answers.league(run)
        yield "machine", self._answers.machine(run)
        yield "matches", self._answers.matches(run)
        for player in chosen[:MAX_EPISODES]:
            for order in ORDERS:
                yield f"episodes {player} {order}", self._answers.episodes(run, player, order)

    def _files(self) -> Iterator[tuple[str, Any]]:
        yield "configuration", self._answers.configuration(self._run)
        files = self._answers.log(self._run)["files"][:MAX_LOGS]
        for name, _ in files:
            yield f"log {name}", self.cleaned({**self._answers.log(self._run, name), "files": files})


def html(data: bytes) -> str:
    """Return the page with its script, style sheet and data."""
    script = (STATIC / "vendor" / "uPlot.iife.min.js").read_text("utf-8") + "\n" + bundle("app.js")
    script = script.replace("</", "<\\/")  # in its strings only: no script may contain its own end
    style = "".join((STATIC / name).read_text("utf-8") for name in ("vendor/uPlot.min.css", "style.css"))
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    policy = POLICY.format(script=_digest(script), style=_digest(style))
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>arena</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}">
<style>{style}</style>
</head>
<body>
<div id="app"><p class="note">The page is loading. It needs JavaScript.</p></div>
<script type="application/octet-stream" id="saved">{packed}</script>
<script>{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def bundle(name: str) -> str:
    """Return a module of the front end, and all that it imports, as one script.

    Each module becomes a function that returns its exports, called after those that it imports.
    """
    order: list[str] = []
    _collect(name, order, ())
    parts = ['"use strict";', "const modules = {};"]
    for module in order:
        text = (STATIC / module).read_text("utf-8")
        exported = _EXPORTED.search(text)
        if exported:  # a library: its exports have other names inside
            names = (pair.split(" as ") for pair in exported[1].split(","))
            returned = ", ".join(f"{pair[-1]}: {pair[0]}" for pair in names)
            body = text[: exported.start()]
        else:
            returned = ", ".join(_EXPORT.findall(text))
            body = _IMPORT.sub(lambda found: f'const {{ {found[1]} }} = modules["{found[2]}"];', text)
            body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        parts.append(f'modules["{module}"] = (() => {{\n{body}\nreturn {{ {returned} }};\n}})();')
    return "\n".join(parts)


def _collect(name: str, order: list[str], importers: tuple[str, ...]) -> None:
    """Append a module to ``order``, after those that it imports."""
    assert name not in importers, f"the modules {' and '.join(importers)} import each other"
    if name not in order:
        for _, imported in _IMPORT.findall((STATIC / name).read_text("utf-8")):
            _collect(imported, order, (*importers, name))
        order.append(name)
