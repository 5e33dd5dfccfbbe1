"""Parts of the site that are made from the code: MkDocs calls the functions ``on_...`` of this module (``mkdocs.yml``).

A page has the line ``<!-- generated: NAME -->`` where such a part belongs; ``PARTS`` has the names. A link to a file of
the repository outside ``docs/`` leads to a copy of that file, so that the same link works in the repository and on the
site.
"""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / ".site-sources"
COPIES = "repository"
"""The folder of the site that holds the linked files of the repository."""

MARK = re.compile(r"^<!-- generated: ([a-z ]+) -->$", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
TEXTS = (".py", ".yaml", ".sh", ".sbatch", ".c", ".md", ".toml")
"""Endings of files that a browser may not show: their copies end in ``.txt``."""


@cache
def configuration_keys() -> str:
    """Return all keys of the configuration file, with an anchor for each."""
    from arena.config.schema import key_table

    return key_table(anchors=True)


@cache
def command_line() -> str:
    """Return the help text of every ``arena`` command."""
    from arena.launch import main
    from arena.launch.commands import COMMANDS

    os.environ["COLUMNS"] = "100"
    parts = []
    for words in ([], *([name] for name in COMMANDS)):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        title = " ".join(["arena", *(words or ["CONFIG"])])
        parts.append(f"## `{title}`\n\n```text\n{text.getvalue().rstrip()}\n```")
    return "\n\n".join(parts)


def tables_of_records() -> str:
    """Return the statements that create the tables of ``arena.sqlite``."""
    from arena.records.database import SCHEMA

    return f"```sql\n{SCHEMA.strip()}\n```"


def page_of_repository(path: str) -> str:
    """Return a Markdown file of the repository without its title, its links as seen from ``docs/FOLDER/``."""
    text = (ROOT / path).read_text("utf-8").partition("\n")[2]
    folder = Path("../..") / Path(path).parent
    return LINK.sub(lambda found: os.path.normpath(folder / found[1]).replace("../../docs/", "../"), text)


PARTS: dict[str, Callable[[], str]] = {
    "configuration keys": configuration_keys,
    "command line": command_line,
    "tables of records": tables_of_records,
    "results": lambda: page_of_repository("benchmarks/RESULTS.md"),
    "configurations": lambda: page_of_repository("configs/README.md"),
}


def _written(text: str) -> str:
    """Return a page's text with its generated parts."""
    return MARK.sub(lambda found: PARTS[found[1]](), text)


def _outside(text: str, page: str) -> dict[str, Path]:
    """Return the links of a page to files of the repository outside ``docs/``, and where these are in it."""
    found = {}
    for link in set(LINK.findall(text)):
        place = Path(os.path.normpath(ROOT / "docs" / Path(page).parent / link))
        if place.is_file() and not place.is_relative_to(ROOT / "docs") and place.is_relative_to(ROOT):
            found[link] = place.relative_to(ROOT)
    return found


def _copy_of(place: Path) -> str:
    """Return where the site has a file of the repository."""
    return f"{COPIES}/{place.as_posix()}{'.txt' if place.suffix in TEXTS else ''}"


def on_startup(**_: object) -> None:
    """Lay out the package as it is once installed, for mkdocstrings: ``envs`` and ``policies`` lie inside ``arena``."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    (SOURCES / "arena").mkdir(parents=True)
    for place in (*(ROOT / "arena").iterdir(), ROOT / "envs", ROOT / "policies"):
        (SOURCES / "arena" / place.name).symlink_to(place)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to."""
    for page in list(files.documentation_pages()):
        for place in _outside(_written(page.content_string), page.src_uri).values():
            uri = _copy_of(place)
            if files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write the generated parts of a page, and turn its links to the repository to the copies."""
    del config, files
    text = _written(markdown)
    outside = _outside(text, page.file.src_uri)
    up = "../" * page.file.src_uri.count("/")
    return LINK.sub(lambda found: up + _copy_of(outside[found[1]]) if found[1] in outside else found[1], text)
