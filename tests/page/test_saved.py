"""The page in one file: it works without a server, and gives away nothing of the machine that it was made on."""

import base64
import getpass
import gzip
import json
import re

import pytest

from arena.launch import main
from arena.page.app import STATIC
from arena.page.saved import bundle
from arena.protocol.messages import Failure
from arena.records.run_directory import RunDirectory
from tests.page.conftest import record, record_league
from tests.page.test_server import SCRIPT


def saved(path, capsys, *runs):
    """Return the text of a page that is saved there."""
    assert main(["page", "--save", str(path), *map(str, runs)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: {len(runs)} run")
    return path.read_text("utf-8")


def data_of(text):
    return gzip.decompress(base64.b64decode(re.search(r'id="saved">([^<]*)<', text)[1])).decode()


@pytest.mark.tier("default")
def test_the_saved_file_needs_neither_server_nor_network(run, tmp_path, browser, capsys):
    league = RunDirectory(tmp_path, "family")
    record_league(league)
    league.arena_log.write_text(f"2026-01-01 00:00:00 ERROR {SCRIPT}\n")
    saved(tmp_path / "report.html", capsys, run.path, league.path)
    with browser.new_context(offline=True, viewport={"width": 400, "height": 800}) as context:
        tab = context.new_page()
        problems, requests = [], []
        tab.on("console", lambda message: message.type in ("error", "warning") and problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("dialog", lambda dialog: problems.append(dialog.message))
        tab.on("request", lambda request: requests.append(request.url.split(":")[0]))
        address = (tmp_path / "report.html").as_uri()
        tab.goto(address)
        tab.get_by_role("link", name="family").click()
        for page, shown in {
            "curves": ".chart.tall",
            "league": ".heat canvas",
            "machine": ".ranks",
            "episodes": ".wide-table",
            "log": ".line.error",
            "configuration": ".report",
            "matches": ".note",
        }.items():
            tab.goto(f"{address}#/{page}?run=family")
            tab.locator(shown).first.wait_for()
            assert tab.evaluate("document.documentElement.scrollWidth") <= 400, page
        tab.goto(f"{address}#/log?run=family")
        assert SCRIPT in tab.locator(".log").inner_text()
        tab.goto(f'{address}#/compare?runs=["first","family"]')
        tab.get_by_role("region", name="Last values").wait_for()
        assert problems == []
        assert set(requests) <= {"file", "data", "blob"}


def test_the_saved_file_holds_no_path_of_the_machine(tmp_path, capsys, monkeypatch):
    run = RunDirectory(tmp_path / "home" / "someone" / "runs", "first")
    run.path.parent.mkdir(parents=True)
    monkeypatch.setenv("LOGNAME", "someone")
    records = record(run, 20)
    records.fault(Failure(1, "node1", "worker", "blue", False, f"error in {run.path}/code/player.py"))
    records.close(1)
    run.log.mkdir(exist_ok=True)
    run.arena_log.write_text(f"begins in {run.path}\nFile /scratch/someone/env.py, line 1\nFile {STATIC}/x.py\n")
    assert getpass.getuser() == "someone"
    data = data_of(saved(tmp_path / "report.html", capsys, run.path))
    assert "someone" not in data and str(tmp_path) not in data and str(STATIC) not in data
    assert json.loads(data)["of"]["first"]["log arena.log"]["text"].startswith(
        "begins in first\nFile /scratch/~/env.py"
    )
    assert json.loads(data)["runs"]["runs"][0]["reason"] == "error in first/code/player.py"


def test_records_that_cannot_be_read_leave_the_rest_of_the_file(run, tmp_path, capsys):
    broken = RunDirectory(tmp_path, "broken")
    record(broken, 50).close(0)
    broken.database.write_bytes(broken.database.read_bytes()[:5000])
    found = json.loads(data_of(saved(tmp_path / "report.html", capsys, run.path, broken.path)))
    assert found["of"]["broken"]["error"].startswith("arena.sqlite: expected the records of a run, found:")
    assert found["of"]["broken"]["configuration"]["keys"]
    assert found["of"]["first"]["curves"]["series"]


@pytest.mark.parametrize("arguments", [["--save", "{}/missing/report.html"]])
def test_a_file_that_cannot_be_written_is_one_sentence(run, tmp_path, capsys, arguments):
    assert main(["page", str(run.path), *(text.format(tmp_path) for text in arguments)]) == 2
    assert "missing/report.html cannot be written: No such file or directory" in capsys.readouterr().err


def test_every_module_of_the_front_end_is_in_the_script_once():
    script = bundle("app.js")
    modules = {path.name for path in STATIC.glob("*.js")}
    assert set(re.findall(r'^modules\["([^"]*)"\] = ', script, re.MULTILINE)) == modules | {"vendor/preact-htm.js"}
    assert not re.search("^(import|export) ", script, re.MULTILINE)
