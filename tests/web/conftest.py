"""A run on fables that takes a second, and a real browser in which the page of it runs."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import pellucid.web
from pellucid import train

STATIC = Path(pellucid.web.__file__).parent / "static"
ORIGIN = "http://127.0.0.1:1"  # nobody answers there: what a test does not serve itself fails

FABLES_RUN = """\
name: fables
corpus: {type: fables, size: 50, world_size: 3, validation_fraction: 0.1}
tokenizer: {type: bpe, vocab_size: 400}
data: {packing: documents}
model: {type: decoder, context_length: 256, d_model: 16, n_layers: 2, n_heads: 2}
optimizer: {type: adamw, lr: 1e-2}
schedule: {type: constant, warmup_steps: 0}
train: {steps: 4, batch_size: 2, precision: fp32, device: cpu, log_every_steps: 1}
evaluation: {every_steps: 2, max_tokens: 512}
sample: {every_steps: 100}
checkpoint: {every_steps: 2, keep_last: 10}
"""


@pytest.fixture(scope="session")
def fables_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory with checkpoints after steps 2 and 4."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "fables.yaml").write_text(FABLES_RUN)
    train(folder / "fables.yaml", folder / "fables", data_dir=folder / "data")
    return folder / "fables"


@pytest.fixture(scope="session")
def lstm_run(fables_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same text that is no decoder."""
    folder = tmp_path_factory.mktemp("lstm") / "lstm"
    changes = {"model": {"type": "lstm", "context_length": 256, "d_model": 8}}
    train(fables_run / "config.yaml", folder, overrides=changes, steps=1, data_dir=fables_run.parent / "data")
    return folder


@pytest.fixture(scope="session")
def gaps_run(fables_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that fills gaps from both sides."""
    folder = tmp_path_factory.mktemp("gaps") / "gaps"
    changes = {
        "name": "gaps",
        "corpus": {"type": "lookup", "keys": 4, "values": 3, "pairs": 3, "queries": 3, "size": 200},
        "tokenizer": {"type": "bpe", "vocab_size": 300, "special_tokens": ["<|endoftext|>", "<|mask|>"]},
        "objective": {"type": "masked"},
        "model": {"type": "decoder", "context_length": 24, "d_model": 16, "n_layers": 2, "n_heads": 2}
        | {"attention_mask": "none"},
        "data": {"packing": "documents", "documents_see_each_other": False},
    }
    train(fables_run / "config.yaml", folder, overrides=changes, data_dir=fables_run.parent / "data")
    return folder


@pytest.fixture(scope="session")
def chat_run(fables_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned answers from conversations."""
    config = tmp_path_factory.mktemp("chat") / "chat.yaml"
    config.write_text("".join(line for line in FABLES_RUN.splitlines(True) if not line.startswith("tokenizer")))
    corpus = {"type": "instructions", "size": 20, "world_size": 3, "validation_fraction": 0.2}
    changes = {"corpus": corpus, "objective": {"type": "sft"}, "start_from": str(fables_run)}
    train(config, config.with_name("chat"), overrides=changes, steps=1, data_dir=fables_run.parent / "data")
    return config.with_name("chat")


@pytest.fixture(scope="session")
def learned_further(chat_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains `chat_run` further, from rewards or from pairs."""
    pairs = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    pair = {"chosen": "A red fox.", "rejected": "A grey hen."}
    pairs.write_text("".join(json.dumps({"prompt": f"Who came on day {day}?", **pair}) + "\n" for day in range(60)))

    def learned(objective: dict[str, object], steps: int = 1) -> Path:
        name = str(objective["type"])
        changes: dict[str, object] = {"objective": objective, "start_from": str(chat_run), "evaluation.max_tokens": 64}
        if name == "dpo":
            changes["corpus"] = {"type": "preferences", "files": [str(pairs)], "validation_fraction": 0.4}
        folder = tmp_path_factory.mktemp(name) / name
        train(chat_run / "config.yaml", folder, overrides=changes, steps=steps)
        return folder

    return learned


@pytest.fixture(scope="module")  # not longer: while it is open, no test of this process can run an event loop
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here: apt-get install chromium")
    as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=as_root)
        yield browser
        browser.close()


@pytest.fixture(autouse=True, scope="session")
def patience() -> None:
    """What a page is expected to show has as long as what is waited for: five seconds are few on a busy machine."""
    expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def modules(browser: Browser) -> Iterator[Page]:
    """An empty page that can import the modules of static/, as `import("/static/model.js")`."""
    page = browser.new_page()
    page.route(f"{ORIGIN}/", lambda route: route.fulfill(body="<title>empty</title>", content_type="text/html"))
    page.route(f"{ORIGIN}/static/*.js", lambda route: route.fulfill(path=STATIC / Path(route.request.url).name))
    page.goto(f"{ORIGIN}/")
    yield page
    page.close()
