"""The page in a real browser: what a person sees, by pointer and by keyboard, and what a browser refuses to run."""

import re

import pytest

from arena.records.player_statistics import PlayerInfo
from arena.records.run_directory import RunDirectory
from tests.page.conftest import record, record_league
from tests.page.test_server import SCRIPT

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.tier("default")]  # one browser for all of them


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


def test_all_runs_of_a_sweep_are_compared_with_two_clicks(tmp_path, serve, tab):
    for place in ("lr/rate-1_seed-1", "lr/rate-1_seed-2", "single"):
        path = tmp_path / "runs" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        record(RunDirectory(path.parent, path.name)).close(0)
    page = serve("--root", tmp_path / "runs")
    tab.goto(page.link)
    tab.get_by_label("Filter").fill("lr/")
    tab.get_by_role("checkbox", name="compare all runs of this list").click()
    tab.get_by_role("link", name="compare 2 runs").click()
    tab.get_by_role("link", name="lr/rate-1_seed-2").wait_for()


def test_runs_are_chosen_and_compared_with_a_band_over_their_seeds(tmp_path, serve, tab):
    for seed in (1, 2):
        run = RunDirectory(tmp_path, f"trial-s{seed}")
        record(run, 400).close(0)
        run.config.write_text(run.config.read_text() + f"seed: {seed}\n")
    other = RunDirectory(tmp_path, "other")
    record(other, 200).close(0)
    other.config.write_text(other.config.read_text() + "verify_replicas: true\nseed: 1\n")
    tab.goto(serve(tmp_path).link)
    for name in ("trial-s1", "trial-s2", "other"):
        tab.get_by_role("checkbox", name=f"compare {name}").press("Space")
    tab.get_by_role("link", name="compare 3 runs").click()
    tab.get_by_role("application", name="return of blue: trial (2 seeds), other").wait_for()
    values = tab.get_by_role("region", name="Last values").inner_text()
    assert re.search(r"trial \(2 seeds\)\s+0\.8997 ± 0", values), values
    differences = tab.get_by_role("region", name="Differences").inner_text()
    assert re.search(r"verify_replicas\s+–\s+–\s+true", differences) and re.search(r"seed\s+1\s+2\s+1", differences)
    tab.get_by_label("seeds together").uncheck()
    tab.get_by_role("application", name="return of blue: trial-s1, trial-s2, other").wait_for()
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


def test_the_pair_of_a_cell_is_opened_with_the_keyboard_and_the_history_is_played(tmp_path, serve, tab):
    run = RunDirectory(tmp_path, "family")
    record_league(run)
    tab.goto(serve(run.path).link + "#/league?run=family")
    table = tab.get_by_role("application", name=re.compile("^Win rates of 4 players"))
    table.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    status = tab.locator(".heat .readout")
    assert status.inner_text() == "exploiter wins 90% against main (79% to 96%; 50 games)"
    tab.keyboard.press("Enter")
    assert "home=exploiter&away=main" in tab.url
    assert tab.locator(".pair").inner_text().startswith("exploiter against main")
    assert tab.get_by_role("alert").all_inner_texts() == ["main loses to its own snapshots"]
    arcs = tab.locator("path title").all_text_contents()
    assert arcs == ["rolled back to main@2000 after 5.00k steps"]
    tab.keyboard.press("ArrowRight")
    assert status.inner_text() == "exploiter and main@2000: not met since exploiter was reset at 4.00k steps"
    games = tab.get_by_role("combobox", name=re.compile("^games"))
    games.select_option("all")
    assert "games=all" in tab.url
    told = "exploiter wins 44% against main@2000 (23% to 67%; 16 games); some 230 more games would tell who is better"
    assert status.inner_text() == told
    table.focus()
    tab.keyboard.press("ArrowLeft")
    assert status.inner_text() == "exploiter wins 80% against main (55% to 93%; 15 games)"
    games.select_option("league")
    slider = tab.get_by_role("slider", name="moment of the run")
    slider.focus()
    tab.keyboard.press("Home")
    assert re.search("exploiter wins .* against main .* [1-9] games", status.inner_text()), status.inner_text()
    assert "main@1000" in tab.get_by_role("region", name="Phases").inner_text()
    tab.get_by_role("link", name="Machine").click()
    limits = tab.get_by_text("waits least").inner_text()
    assert limits.startswith("Rank 2 (worker of main, seat 0 of match 0) waits least, 10% of its time"), limits
    assert "rank 1 for seat 0, 3 s" in limits
    assert tab.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_finding_of_accessibility_and_nothing_wider_than_a_telephone(run, serve, browser, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    league = RunDirectory(run.path.parent, "family")
    record_league(league)
    page = serve(run.path, league.path)
    with browser.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme) as context:
        tab = context.new_page()
        pages = ("curves", "league", "matches", "episodes", "machine", "log", "configuration")
        for address in ("#/", *(f"#/{name}?run=family" for name in pages)):
            tab.goto(page.link + address)
            tab.locator(".chart, .wide-table, .heat, .log, .note").first.wait_for()
            found = axe.Axe().run(tab).response["violations"]
            assert [
                (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
            ] == []
            assert tab.evaluate("document.documentElement.scrollWidth") <= 400, address
