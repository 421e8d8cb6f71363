"""The page in a real browser: what it shows is what the program did."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from commands import ended
from workshop.paths import build_dir

from .conftest import Serve, sample_all
from .watched import Watched

Page = Any
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """An empty page that must end without an error."""
    context = browser.new_context(
        viewport={"width": 1400, "height": 900}, accept_downloads=True
    )
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.on(
        "console",
        # A program that has ended does not answer, and the page goes on asking.
        lambda message: (
            complaints.append(message.text)
            if message.type == "error" and "net::ERR_" not in message.text
            else None
        ),
    )
    # Nothing may be loaded from anywhere else.
    shown.on(
        "request",
        lambda request: (
            complaints.append(request.url)
            if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:"))
            else None
        ),
    )
    yield shown
    context.close()
    assert complaints == []


def size(text: str) -> float:
    """The bytes that a text such as "12.3 MiB" tells."""
    found = re.search(r"([\d.]+) (B|KiB|MiB|GiB)", text)
    assert found is not None, text
    return float(found[1]) * UNITS[found[2]]


def open_page(page: Page, program: Watched, panel: str = "") -> None:
    """Shows the page, paused on figures that are newer than this call."""
    page.goto(f"{program.link}#{panel}")
    page.locator("#totals .card-value").first.wait_for()


def test_figures_reach_the_page(serve: Serve, page: Page) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("leak 20480 2000")
        program.do("sparse 2048 16000")
        open_page(page, program, "flame-graph")
        leaked, kept = 2000 * 20480, 1000 * 2048
        in_use = size(page.locator(".card", has_text="In use").inner_text())
        assert in_use == pytest.approx(leaked + kept, rel=0.02)
        free = size(page.locator(".fall-row", has_text="free in slabs").inner_text())
        assert free == pytest.approx(15000 * 2048, rel=0.1)
        rows = page.locator(".fall-row:not(.total) .fall-bytes").all_inner_texts()
        resident = size(page.locator(".fall-row.total .fall-bytes").inner_text())
        assert sum(map(size, rows)) == pytest.approx(resident, rel=0.02)
        frame = page.locator(".flame .frame", has_text="Sessions::open").first
        frame.hover()
        told = page.locator(".flame-facts").inner_text()
        assert size(told) == pytest.approx(leaked, rel=0.01)


def test_a_finding_leads_to_its_panel(serve: Serve, page: Page) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("sparse 2048 60000")
        open_page(page, program)
        page.locator("#verdict a", has_text="lies free between blocks").click()
        chosen = page.locator("[role=tab][aria-selected=true]")
        assert chosen.inner_text() == "Fragmentation"
        assert page.locator("#verdict.watch").count() == 1


def test_every_panel_shows_something(serve: Serve, page: Page) -> None:
    with serve(profile="0", purge_delay="-1") as program:
        sample_all(program)
        program.do("work 3 1536 2000")
        program.do("heap 4096 300")
        program.do("sparse 2048 16000")
        program.do("temporary 4096 1000")
        open_page(page, program)
        page.keyboard.press("3")
        assert page.locator("td", has_text="2.00 KiB").count() >= 1
        page.keyboard.press("4")
        names = page.locator("td.text").all_inner_texts()
        assert all(any(f"worker-{i}" in name for name in names) for i in range(3))
        page.locator("tr", has_text="worker-1").locator(".opener").click()
        page.locator("th button", has_text="Peak").click()
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("Peak")
        page.keyboard.press("5")
        page.locator("#panel .bins span", has_text="90–100").wait_for()
        assert "free blocks" in page.locator("#panel .note").first.inner_text()
        page.get_by_text("Cache::make").first.wait_for()
        page.keyboard.press("6")
        page.locator("td", has_text="tiles").wait_for()
        page.keyboard.press("7")
        page.locator("td", has_text="Parser::parse").first.wait_for()


def test_buttons_reach_the_program(serve: Serve, page: Page) -> None:
    with serve(purge_delay="-1") as program:
        program.do("hold 20480 2000")
        program.do("drop")
        open_page(page, program)
        page.get_by_role("button", name="Purge").click()
        page.locator(".said", has_text="Purge gave back").wait_for()
        purged = size(page.locator(".said").inner_text())
        assert purged == pytest.approx(2000 * 20480, rel=0.2)
        page.locator(".fall-row", has_text="dirty").locator(
            ".fall-bytes", has_text=re.compile("^(0 B|[0-9.]+ KiB)$")
        ).wait_for()
        page.get_by_label("Sampling").select_option("4096")
        page.wait_for_function("document.title.includes('Allod')")
        page.get_by_role("button", name="Mark").click()
        page.get_by_label("Label of the mark").fill("deploy")
        page.get_by_role("button", name="Set mark").click()
        page.get_by_label("Label of the mark").wait_for(state="detached")
        page.get_by_role("button", name="Reset").click()
        page.get_by_role("button", name="Pause").click()
        page.locator(".status.paused").wait_for()
        state = program.fresh_state()
        assert state["profile"]["interval"] == 4096
        assert [mark["label"] for mark in state["history"]["marks"]] == ["deploy"]
        for what, end in {"json": ".json", "csv": ".csv", "pprof": ".pb.gz"}.items():
            with page.expect_download() as saved:
                page.get_by_label("Save").select_option(what)
            assert saved.value.suggested_filename.endswith(end)
        page.keyboard.press("p")
        page.locator(".status.live").wait_for()


def test_the_zoom_stays_while_figures_change(serve: Serve, page: Page) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("leak 20480 100")
        program.do("hold 2048 2000")
        open_page(page, program, "flame-graph")
        frames = page.locator(".flame .frame")
        whole = page.locator(".flame .frame.root").bounding_box()["width"]
        page.locator(".flame .frame", has_text="Sessions::open").first.click()
        for _ in range(10):
            program.do("leak 20480 100")
            with page.expect_response("**/api/flame?**"):
                page.keyboard.press("1")
            zoomed = page.locator(".flame .frame:not(.above)").first
            assert zoomed.inner_text() == "Sessions::open"
            assert zoomed.bounding_box()["width"] == pytest.approx(whole, rel=0.01)
        page.get_by_role("button", name="See all").last.click()
        assert frames.filter(has_text="Cache::make").count() == 1


def test_the_end_of_the_program_is_told(serve: Serve, page: Page) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("leak 20480 1000")
        open_page(page, program, "flame-graph")
        page.locator(".flame .frame", has_text="Sessions::open").first.wait_for()
        in_use = page.locator(".card", has_text="In use").inner_text()
        program.process.kill()
        program.process.wait()
        status = page.locator(".status.ended")
        status.wait_for()
        assert re.fullmatch(
            r"ended at \d\d:\d\d, last figures kept", status.inner_text()
        )
        # Whatever is opened now, nothing is told to have failed.
        page.keyboard.press("2")
        page.keyboard.press("1")
        page.keyboard.press("p")
        assert page.locator(".card", has_text="In use").inner_text() == in_use
        assert page.locator(".flame .frame", has_text="Sessions::open").count() == 1
        assert "fetch" not in page.locator("body").inner_text()


def test_a_click_on_a_row_opens_it(serve: Serve, page: Page) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("temporary 4096 1000")
        open_page(page, program, "temporary")
        page.locator("td.number", has_text="MiB").first.click()
        page.locator(".stack li", has_text="Parser::parse").wait_for()


WORKER = """\
import os, sys
if os.fork() == 0:
    x = [str(i) for i in range(100000)]
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_page_of_a_worker_opens_from_its_masters(serve: Serve, page: Page) -> None:
    with serve("/usr/bin/python3", "-c", WORKER, live_children="1") as program:
        assert program.process.stdout is not None
        program.process.stdout.readline()
        program.process.stdout.readline()
        open_page(page, program, "processes")
        with page.expect_popup() as opened:
            page.locator("td a", has_text="open").click()
        worker = opened.value
        worker.locator("#totals .card-value").first.wait_for()
        assert f"process {program.process.pid}" in page.locator("#bar").inner_text()
        assert (
            f"process {program.process.pid}" not in worker.locator("#bar").inner_text()
        )


def test_a_search_can_be_read(serve: Serve, page: Page) -> None:
    with serve(profile="0") as program:
        sample_all(program)
        program.do("leak 20480 1000")
        page.emulate_media(color_scheme="dark")
        open_page(page, program, "flame-graph")
        page.get_by_label("Find a function").fill("sessions")
        frame = page.locator(".frame.match").first
        colors = frame.evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor].map(c =>"
            " '#' + c.match(/\\d+/g).slice(0, 3)"
            ".map(n => Number(n).toString(16).padStart(2, '0')).join(''))"
        )
        assert contrast(*map(luminance, colors)) > 7


def test_the_map_is_short_on_a_phone(serve: Serve, page: Page) -> None:
    with serve(profile="0") as program:
        program.do("hold 20480 8000")
        page.set_viewport_size({"width": 400, "height": 900})
        open_page(page, program, "fragmentation")
        page.locator("#panel .note", has_text="slabs of").wait_for()
        assert page.locator("#panel canvas").bounding_box()["height"] <= 300


# Tables that have to be moved sideways, and labels that do not fit.
CUT_OFF = """[...document.querySelectorAll(".table-frame, .bins span")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1)
    .map((each) => each.textContent.slice(0, 40))"""


@pytest.mark.parametrize("width", [400, 700, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off(serve: Serve, page: Page, width: int, theme: str) -> None:
    """The page scrolls down, never sideways, and texts stand out from what is behind them."""
    with serve(profile="0") as program:
        sample_all(program)
        program.do("work 2 1536 2000")
        program.do("heap 4096 300")
        program.do("temporary 4096 1000")
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, program)
        for panel in "12345678":
            page.keyboard.press(panel)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CUT_OFF) == [], panel
        colors = page.evaluate(
            "['--text', '--muted', '--raised'].map("
            " name => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
        )
        text, muted, back = map(luminance, colors)
        assert contrast(text, back) > 7
        assert contrast(muted, back) > 4.5


def luminance(color: str) -> float:
    """After WCAG 2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """After WCAG 2: from 1 to 21."""
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


def test_redis_under_load(serve: Serve, page: Page, debian_packages: Any) -> None:
    debian_packages("redis-server", "redis-tools")
    command = [
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        "redis.sock",
        "--save",
        "",
    ]
    with serve(*command, profile="65536") as program:
        assert program.process.stdout is not None
        for line in program.process.stdout:
            if "ready to accept" in line.lower():
                break
        socket = [
            "-s",
            str(program.process.args and f"/proc/{program.process.pid}/cwd/redis.sock"),
        ]
        subprocess.run(
            [
                "redis-benchmark",
                *socket,
                "-q",
                "-n",
                "60000",
                "-r",
                "50000",
                "-d",
                "500",
                "-t",
                "set",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        told = subprocess.run(
            ["redis-cli", *socket, "info", "memory"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        used = int(told.split("used_memory:", 1)[1].split()[0])
        open_page(page, program)
        in_use = size(page.locator(".card", has_text="In use").inner_text())
        # Redis asks for the usable size of every block, and adds it up.
        assert in_use == pytest.approx(used, rel=0.03)


def test_the_page_is_typed(liballod_live: object) -> None:
    """What esbuild does not check."""
    folder = build_dir("release") / "live"
    done = ended(folder / "node_modules" / ".bin" / "tsc", "--project", folder)
    assert (done.returncode, done.stdout) == (0, "")
