"""The pages in a real browser: drawn, usable, silent, and alone with their file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tests.unit.report.sample import TASKS, description, load_run, model_notes

from consort.report.inspect import write_inspection
from consort.report.page import write_report
from consort.results.claims import Verdict

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
DESKTOP, PHONE = 1280, 390
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
VERDICTS = [Verdict("accuracy(ditto) > accuracy(fedavg)", "holds", "margin +0.1")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        load_run(folder / f"{name}-{seed}", algorithm=name, seed=seed, models=models, clients=12)
        for name, models in (("fedavg", ("global",)), ("ditto", ("personal", "global")))
        for seed in (0, 1)
    ]
    shape = {"shape": TASKS["shape"]}
    crowd = [
        load_run(
            folder / f"crowd-{name}",
            algorithm=name,
            clients=1000,
            rounds=3,
            tasks=shape,
            notes=model_notes(1000, 3) if name == "fedfew" else (),
        )
        for name in ("fedavg", "fedfew")
    ]
    few = [
        load_run(folder / f"few-{seed}", algorithm="fedfew", seed=seed, notes=notes)
        for seed, notes in enumerate([model_notes(), model_notes(chosen=2)])
    ]
    return {
        "single": write_report(runs[2:3], folder / "single.html"),
        "comparison": write_report(runs, folder / "comparison.html", VERDICTS),
        "crowd": write_report(crowd, folder / "crowd.html"),
        "models": write_report(few, folder / "models.html"),
        "inspection": write_inspection(description(12), folder / "inspection.html"),
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    missing = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    if missing:
        reason = f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    os.environ["SE_AVOID_STATS"] = "true"
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield driver
    driver.quit()


def show(browser, page, width=DESKTOP, scheme="light"):
    """Opens a page as a screen of this width shows it."""
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wish = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [wish]})
    browser.get(page.as_uri())


def draw_everything(browser):
    """Unfolds and draws all pictures; returns the size of what is drawn in each."""
    browser.execute_script(
        "document.querySelectorAll('details').forEach((part) => part.open = true);"
        "dispatchEvent(new Event('beforeprint'));"
    )
    sizes = """return [...document.querySelectorAll('.plot')].map((plot) => {
        const marks = plot.querySelectorAll('.plot path, .plot image, .plot rect');
        const picture = plot.querySelector('svg.main-svg');
        return picture && marks.length ? [picture.clientWidth, picture.clientHeight] : [0, 0];
    })"""
    WebDriverWait(browser, 15).until(
        lambda _: all(width and height for width, height in browser.execute_script(sizes))
    )
    return browser.execute_script(sizes)


def complaints(browser):
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser):
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [event["request"]["url"] for event in sent]


def column(browser, table, index):
    cells = (
        "return [...arguments[0].rows].slice(1).map((row) => row.cells[arguments[1]].textContent)"
    )
    return browser.execute_script(cells, table, index)


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("single", DESKTOP),
        ("comparison", PHONE),
        ("crowd", DESKTOP),
        ("models", PHONE),
        ("inspection", PHONE),
    ],
)
def test_every_picture_is_drawn_without_a_complaint(browser, pages, tmp_path, name, width):
    show(browser, pages[name], width, "dark" if name == "single" else "light")
    sizes = draw_everything(browser)
    assert len(sizes) >= (2 if name == "inspection" else 6)
    for drawn_width, drawn_height in sizes:
        assert 150 < drawn_width < width
        assert drawn_height > 90
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.save_screenshot(str(tmp_path / f"{name}-{width}.png"))
    assert complaints(browser) == []
    asked = requests(browser)
    assert pages[name].as_uri() in asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}


def test_pictures_are_drawn_when_they_come_into_view(browser, pages):
    show(browser, pages["single"])
    plots = browser.find_elements(By.CSS_SELECTOR, "#federation .plot")
    assert plots
    assert not any(plot.get_attribute("data-drawn") is not None for plot in plots)
    browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", plots[0])
    WebDriverWait(browser, 10).until(lambda _: plots[0].find_elements(By.CSS_SELECTOR, ".main-svg"))
    assert plots[0].size["height"] > 90


def test_who_uses_which_model(browser, pages):
    show(browser, pages["models"])
    part = browser.find_element(By.ID, "model-assignment")
    first, second = part.find_elements(By.TAG_NAME, "details")
    shown = [fold.find_element(By.CSS_SELECTOR, ".plot") for fold in (first, second)]
    assert [plot.is_displayed() for plot in shown] == [True, False]
    assert second.text == "fedfew, seed 1: all clients chose model 2: the other models are not used"
    draw_everything(browser)
    chosen, clients, models = first.find_elements(By.CSS_SELECTOR, ".plot")
    digits = [cell.text for cell in chosen.find_elements(By.CSS_SELECTOR, ".heatmap-label")]
    assert len(digits) == 6 * 10
    assert set(digits) == {"0", "1", "2"}
    assert {t.text for t in chosen.find_elements(By.CSS_SELECTOR, ".cbaxis text")} == {
        "model 0", "model 1", "model 2",
    }  # fmt: skip
    assert clients.find_elements(By.CSS_SELECTOR, ".heatmaplayer image")
    numbers = [cell.text for cell in models.find_elements(By.CSS_SELECTOR, ".heatmap-label")]
    weights = [r for r in model_notes() if (r.round, r.metric) == (10, "model_weight")]
    assert sorted(filter(None, numbers)) == sorted(f"{round(row.value, 2):g}" for row in weights)
    lines = browser.find_elements(By.CSS_SELECTOR, "#algorithm-diagnostics .lines path.js-line")
    assert lines


def test_a_table_is_sorted_by_clicking_its_heads(browser, pages):
    show(browser, pages["single"])
    table = browser.find_element(By.CSS_SELECTOR, "#clients table")
    heads = [head.text for head in table.find_elements(By.CSS_SELECTOR, "th button")]

    def click(name):
        button = table.find_elements(By.CSS_SELECTOR, "th button")[heads.index(name)]
        browser.execute_script("arguments[0].click()", button)
        return column(browser, table, heads.index(name))

    trained = click("Train")
    assert trained == sorted(trained, key=int)
    assert len(set(trained)) > 3
    assert click("Train") == trained[::-1]
    assert table.find_elements(By.CSS_SELECTOR, "th[aria-sort=descending]")[0].text.startswith(
        "Train"
    )
    names = click("Client")
    assert names[0] == "client-0"
    assert names.index("client-2") < names.index("client-10")


def test_the_recipe_unfolds(browser, pages):
    show(browser, pages["single"])
    block = browser.find_element(By.CSS_SELECTOR, "#settings details")
    text = block.find_element(By.TAG_NAME, "pre")
    assert not text.is_displayed()
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", block
    )
    block.find_element(By.TAG_NAME, "summary").click()
    assert text.is_displayed()
    assert "dirichlet" in text.text


def test_verdicts_are_coloured(browser, pages):
    show(browser, pages["comparison"])
    badge = browser.find_element(By.CSS_SELECTOR, ".verdict")
    quiet = browser.find_element(By.CSS_SELECTOR, ".claim p")
    assert badge.text == "holds"
    assert badge.value_of_css_property("color") != quiet.value_of_css_property("color")


def test_a_dark_screen_gets_a_dark_page(browser, pages):
    def ground(scheme):
        show(browser, pages["inspection"], scheme=scheme)
        body = browser.find_element(By.TAG_NAME, "body")
        return body.value_of_css_property("background-color")

    assert ground("dark") != ground("light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_plot_is_downloaded_by_its_buttons(browser, pages, tmp_path, scheme):
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    show(browser, pages["comparison"], scheme=scheme)
    draw_everything(browser)
    plot = browser.find_element(By.CSS_SELECTOR, "#learning-curves .plot")
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        button = plot.find_element(By.CSS_SELECTOR, f"[data-title='Download as {kind.upper()}']")
        browser.execute_script("arguments[0].click()", button)
        file = tmp_path / f"shape-test-accuracy.{kind}"
        WebDriverWait(browser, 10).until(lambda _, file=file: file.exists() and file.stat().st_size)
        assert file.read_bytes().startswith(start)
    picture = (tmp_path / "shape-test-accuracy.svg").read_text()
    assert "rgb(28, 36, 48)" in picture  # dark text on white, whatever the screen's colours
    assert complaints(browser) == []
