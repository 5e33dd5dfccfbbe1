"""The page in a real browser: what a person sees, by pointer and by keyboard, and what a browser refuses to run."""

import re

import pytest

from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from tests.page.conftest import record
from tests.page.test_server import SCRIPT

pytestmark = pytest.mark.xdist_group("browser")  # one browser for all of them


@pytest.fixture
def tab(browser):
    """A tab that records what goes wrong in it: messages on its console, and requests to other servers."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.problems, tab.requests = [], []
    tab.on("console", lambda message: message.type in ("error", "warning") and tab.problems.append(message.text))
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.on("request", lambda request: tab.requests.append(request.url))
    yield tab
    context.close()


def test_a_point_of_a_curve_is_read_with_the_keyboard_and_pinned(run, serve, tab):
    page = serve(run.path)
    tab.goto(page.link)
    tab.get_by_role("link", name="first").click()
    chart = tab.get_by_role("application", name=re.compile("^return of first: blue"))
    chart.wait_for()
    chart.focus()
    tab.keyboard.press("End")
    readout = tab.locator(".chart.tall .readout")
    assert re.sub(r"\s+", " ", readout.inner_text()).startswith("8.00k steps blue 1 "), readout.inner_text()
    tab.keyboard.press("Enter")
    tab.keyboard.press("Home")
    assert "20 steps" in readout.inner_text().replace("\n", " ")
    assert "8.00k" in tab.locator(".pins li").inner_text()
    tab.get_by_label("x axis").select_option("time")
    assert "x=time" in tab.url
    assert all(url.startswith(f"http://127.0.0.1:{page.port}/") for url in tab.requests), tab.requests
    assert tab.problems == []


def test_a_run_directory_from_a_stranger_runs_nothing(tmp_path, serve, tab):
    run = RunDirectory(tmp_path, "<img src=x onerror=alert(1)>")
    players = {SCRIPT: PlayerInfo(SCRIPT, "#3b82f6"), "red": PlayerInfo("random", "red;}" + SCRIPT, learns=False)}
    record(run, 50, players).close(1)
    tab.on("dialog", lambda dialog: tab.problems.append(f"a dialog: {dialog.message}"))
    tab.goto(serve(run.path).link)
    tab.get_by_role("link", name="<img src=x onerror=alert(1)>").click()
    tab.get_by_role("application").first.wait_for()
    assert tab.title() == "<img src=x onerror=alert(1)> · arena"
    assert SCRIPT in tab.locator(".players").inner_text()
    assert tab.locator("main img, main script").count() == 0
    assert tab.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_finding_of_accessibility_and_nothing_wider_than_a_telephone(run, serve, browser, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = serve(run.path)
    with browser.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme) as context:
        tab = context.new_page()
        for address in ("#/", "#/curves?run=first"):
            tab.goto(page.link + address)
            tab.locator(".chart, .wide-table").first.wait_for()
            found = axe.Axe().run(tab).response["violations"]
            assert [
                (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
            ] == []
            assert tab.evaluate("document.documentElement.scrollWidth") <= 400, address
