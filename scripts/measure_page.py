"""From a keystroke to redrawn panels, measured inside a browser that shows the Model Microscope.

    python scripts/measure_page.py checkpoints/fables --record

The page of the run is opened, and letters are typed one after the other at the end of its text. A browser's own clock
runs from the key event until the frame with the new panels in sight is painted, and until the truth stands beside
them. The same is done with random weights in a model of ten million parameters, and in the run's page exported to one
file, where the model runs in the browser and typed text has no truth. Figures are medians over --keystrokes letters.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TypeAlias

import yaml
from playwright.sync_api import Browser, sync_playwright
from results import parser, print_table, record

from pellucid.checkpoint.run_directory import find_step_directory
from pellucid.checkpoint.step_directory import read_checkpoint, write_checkpoint
from pellucid.checkpoint.training_state import model_tensors
from pellucid.config.load import parse_run_config
from pellucid.model.build import build_model
from pellucid.tokenizer import Tokenizer
from pellucid.web.export import export_page

TEN_MILLION = {"d_model": 320, "n_layers": 8, "n_heads": 8}
TYPED = " they met an old friend by the river and sat down to talk about the weather for a while"
WARM_UP = 5  # letters that are not counted
TRUTH = "keystroke to truth (ms)"
Figures: TypeAlias = "dict[str, float | str]"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("run", type=Path)
    options.add_argument("--keystrokes", type=int, default=40)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, a_browser() as browser:
        larger = with_random_weights(given.run, Path(folder) / "ten_million")
        figures: dict[str, Figures] = {}
        for name, run in (("demo", given.run), ("larger", larger)):
            with served(run) as address:
                figures[name] = typing(browser, address, given.keystrokes)
        file = Path(folder) / "page.html"
        export_page([given.run], file)
        figures["demo, exported"] = typing(browser, file.as_uri(), given.keystrokes) | {TRUTH: "not known"}
    print_table("run", figures)
    if given.record:
        record("page", figures, ["fables/shape"], numbers="fp32")


def with_random_weights(run: Path, to: Path) -> Path:
    """Writes a copy of the run with a larger model that has learned nothing."""
    checkpoint = read_checkpoint(find_step_directory(run, "best"))
    config = yaml.safe_load(checkpoint.config_yaml)
    config["model"] |= TEN_MILLION
    text = yaml.safe_dump(config)
    vocab_size = Tokenizer.from_json(checkpoint.tokenizer_json).vocab_size
    model = build_model(parse_run_config(text, "config.yaml").model, vocab_size)
    to.mkdir()
    (to / "config.yaml").write_text(text, encoding="utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in model_tensors(model).items()}
    write_checkpoint(to, replace(checkpoint, model=tensors, optimizer={}, rng={}, config_yaml=text))
    return to


def typing(browser: Browser, address: str, n: int) -> Figures:
    """Milliseconds, and how many parameters and tokens there were."""
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(address)
    page.wait_for_selector("#part-next .candidate", timeout=120_000)
    page.wait_for_selector("main[aria-busy=false]", timeout=120_000)
    page.focus("#text")
    page.keyboard.press("Control+End")
    for letter in (TYPED * (n // len(TYPED) + 1))[: n + WARM_UP]:
        page.keyboard.type(letter)
        page.wait_for_timeout(60)  # nobody types faster
        page.wait_for_selector("main[aria-busy=false]")
    page.wait_for_timeout(300)
    taken = page.evaluate("performance.getEntriesByType('measure').map(({name, duration}) => [name, duration])")
    figures: Figures = {
        "parameters": float(page.get_attribute("[data-name=parameters]", "data-value") or 0),
        "tokens": float(page.get_attribute("[data-name=tokens]", "data-value") or 0),
    }
    page.close()
    for name, answer in (("redrawn", "trace"), ("truth", "truth")):
        if durations := [duration for what, duration in taken if what == f"keystroke to {answer}"][WARM_UP:]:
            figures[f"keystroke to {name} (ms)"] = median(durations)
    return figures


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The address of a page of the run, in a process of its own."""
    context = get_context("spawn")
    told, tells = context.Pipe()
    process = context.Process(target=serve, args=(run, tells), daemon=True)
    process.start()
    address = f"http://127.0.0.1:{told.recv()}/"
    while True:
        try:
            urllib.request.urlopen(f"{address}health", timeout=1).close()
            break
        except OSError:
            if not process.is_alive():
                sys.exit("error: the server of the page ended as it started; its error stands above")
            time.sleep(0.2)
    yield address
    process.terminate()
    process.join()


def serve(run: Path, tells: object) -> None:
    from pellucid.web import server
    from pellucid.web.app import make_app

    listening = server.listen("127.0.0.1", 0)
    tells.send(listening.getsockname()[1])  # type: ignore[attr-defined]
    server.run(make_app([run]), listening)


@contextmanager
def a_browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
