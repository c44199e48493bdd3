"""From a keystroke to redrawn panels, measured inside a browser that shows the Model Microscope.

Remakes: page
Takes: half a minute
Needs: checkpoints/fables, chromium

The page of the run is opened, and letters are typed one after the other at the end of its text. A browser's own clock
runs from the key event until the frame with the new panels in sight is painted, and until the truth stands beside
them. The same is done with random weights in a model of ten million parameters, and in the run's page exported to one
file, where the model runs in the browser and typed text has no truth. Figures are medians over --keystrokes letters.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

import yaml
from browser import a_browser, page_of, settled
from playwright.sync_api import Browser
from results import Entry

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
Figures: TypeAlias = "dict[str, float | str]"


def measure(run: Path, *, keystrokes: int = 40) -> Iterator[Entry]:
    figures: dict[str, Figures] = {}
    with a_browser() as browser:
        for name, shown in (("demo", run), ("larger", with_random_weights(run, Path("ten_million")))):
            with page_of(shown) as address:
                figures[name] = typing(browser, address, keystrokes)
        export_page([run], file := Path("page.html").resolve())
        exported = typing(browser, file.as_uri(), keystrokes)
        figures["demo, exported"] = {**exported, "keystroke to truth (ms)": "not known"}
    yield Entry("page", figures, ["fables/shape"], numbers="fp32")


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
    settled(page)
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
