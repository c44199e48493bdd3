"""The page that trains: its decoder and its updates are those of the package, and what it has trained can be used."""

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from torch import nn

import pellucid
from browsing import LAPTOP, PHONE, serious_violations, settled, watched
from pellucid.config.model import DecoderConfig
from pellucid.errors import ConfigError
from pellucid.model.build import build_model
from pellucid.objectives.next_token import cross_entropy
from pellucid.training.optimizers import muon, set_learning_rate
from pellucid.training.schedules import warmup_stable_decay
from pellucid.web import lab as web_lab
from pellucid.web.app import make_app, page_that_trains
from pellucid.web.lab import LAB, WORKER_MODULES, Told, language_of, linked, of_rules, page
from serving import served

N_UPDATES, VOCAB_SIZE = 50, 20
SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 2}
MUON = {"lr": 0.01, "momentum": 0.95, "adamw_lr": 0.01, "adamw_betas": (0.9, 0.95), "adamw_eps": 1e-8}
SCHEDULE = {"steps": N_UPDATES, "warmup_steps": 5, "decay_fraction": 0.6}


def test_the_vendored_library_is_the_one_that_was_read():
    """jax.js is @jax-js/jax 0.1.25 as its first line says, and nothing else."""
    known = "6cffc4b3bf70892dc62bd0ae05a86d0e7eb85ed33eb529e7ba519c148beca142"
    assert hashlib.sha256((LAB / "jax.js").read_bytes()).hexdigest() == known


@pytest.fixture(scope="module")
def empty(browser: Browser) -> Iterator[Page]:
    """A page with the worker's code but its last module, which listens to the lab."""
    page = browser.new_page()
    page.add_script_tag(content="".join(linked(LAB / name) for name in WORKER_MODULES[:-1]))
    yield page
    page.close()


def test_fifty_updates_have_the_losses_of_the_package(empty: Page):
    torch.manual_seed(0)
    config = DecoderConfig(context_length=12, activation="relu_squared", qk_norm=True, **SIZES)
    model = build_model(config, vocab_size=VOCAB_SIZE)
    weights = {name: {"shape": list(p.shape), "values": p.flatten().tolist()} for name, p in model.named_parameters()}
    rows_NBT = torch.randint(VOCAB_SIZE, (N_UPDATES, 4, 13))
    counts_BT = torch.ones(4, 12)
    counts_BT[0, 7:] = 0  # a document that is shorter than its row

    optimizers = muon(model, **MUON, weight_decay=0.0, dtype=torch.float32)
    expected = []
    for step, rows_BT in enumerate(rows_NBT):
        factor = warmup_stable_decay(step, **SCHEDULE, final_lr_fraction=0.0)
        set_learning_rate(optimizers, factor)
        nats_BT = cross_entropy(model(rows_BT[:, :-1]).flatten(0, 1), rows_BT[:, 1:].flatten()).unflatten(0, (4, 12))
        loss = (nats_BT * counts_BT).sum() / counts_BT.sum()
        expected.append(loss.item())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()

    losses, trained = empty.evaluate(
        """async ({weights, rows, counts, muon, schedule, heads}) => {
            const { init, defaultDevice, numpy: np, tree } = jax_js;
            const { compiledUpdate, freshState, learningRate, modelOf, weightsOf } = training_js;
            await init("wasm");
            defaultDevice("wasm");
            const update = compiledUpdate(heads, muon, 1);
            let [state, losses] = [freshState(modelOf(weights)), []];
            for (const [step, batch] of rows.entries()) {
                const part = (from, to) => np.array(batch.map((row) => row.slice(from, to)), { dtype: np.int32 });
                const rate = np.array(learningRate(step, schedule));
                const [next, loss] =
                    update(state, part(0, -1), part(1), np.array(counts), rate, np.array(step + 1));
                [state, losses] = [next, [...losses, loss.js()]];
            }
            const trained = await weightsOf(state.model, Object.keys(weights));
            return [losses, Object.fromEntries(Object.entries(trained).map(([name, w]) => [name, [...w.values]]))];
        }""",
        {
            "weights": weights,
            "rows": rows_NBT.tolist(),
            "counts": counts_BT.tolist(),
            "muon": MUON,
            "schedule": SCHEDULE,
            "heads": SIZES["n_heads"],
        },
    )
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=0, atol=1e-4)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(torch.tensor(trained[name]), parameter.detach().flatten(), rtol=0, atol=2e-3)


STEPS = 3
CHANGES = ["corpus.length=8", "corpus.size=80", "corpus.validation_fraction=0.1", "tokenizer.vocab_size=260"]
CHANGES += [
    "model.d_model=16",
    "model.n_layers=1",
    "schedule.warmup_steps=1",
    f"train.steps={STEPS}",
    "train.batch_size=2",
]


@pytest.fixture(scope="module")
def chains() -> dict[str, Any]:
    return language_of(Told("languages/chains", "Chains", "Each text has a table of its own.", CHANGES))


@pytest.fixture(scope="module")
def file(chains: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lab") / "lab.html"
    file.write_text(page([chains]))
    return file


@contextmanager
def opened(browser: Browser, file: Path, before: str = "", **options: Any) -> Iterator[Page]:
    """A window of the file, after a script; at its end, that nothing went wrong in it or was asked of others."""
    window = browser.new_page(**{"viewport": LAPTOP, "accept_downloads": True, **options})
    window.add_init_script(before)
    faults: list[str] = []
    window.on("pageerror", lambda error: faults.append(str(error)))
    window.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    own = ("file:", "data:", "blob:")
    window.on("request", lambda asked: None if asked.url.startswith(own) else faults.append(asked.url))
    window.goto(file.as_uri())
    yield window
    window.close()
    assert faults == [], faults


@pytest.mark.parametrize("name", ["chains", "fables"])
def test_what_a_browser_has_trained_is_a_run(
    name: str, browser: Browser, chains: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    of_file = of_rules(LAB / "fables.rules", "Very small stories.")
    fables = of_file._replace(changes=[*of_file.changes, *CHANGES[1:], "tokenizer.vocab_size=500"])
    language = chains if name == "chains" else language_of(fables)
    (tmp_path / "lab.html").write_text(page([language]))
    with opened(browser, tmp_path / "lab.html") as window:
        expect(window.locator(".guesses")).to_be_visible()
        assert window.locator("#curve line.floor").count() == 0  # the reader predicts it first
        window.get_by_role("spinbutton").fill("1")
        window.get_by_role("button", name="Train", exact=True).click()
        expect(window.get_by_role("button", name="Trained")).to_be_visible()
        status = window.locator(".side .status")
        expect(status).to_have_attribute("data-step", str(STEPS))
        shown = float(status.get_attribute("data-loss") or "nan")
        assert f"The floor is {language['floor']:.3f}" in window.locator("#verdict").inner_text()
        assert window.locator("#curve line.floor").count() == 1
        with window.expect_download() as download:
            window.get_by_role("button", name="Download the model").click()
        download.value.save_as(tmp_path / "my.tar")
    with tarfile.open(tmp_path / "my.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)  # a file of rules is in the run, too
    run = pellucid.load(tmp_path / f"my_{name}")
    validation = run.evaluate(data_dir=tmp_path / "data")
    assert validation.loss == pytest.approx(shown, abs=1e-4)
    assert validation.floor_nats_per_token == pytest.approx(language["floor"], abs=1e-6)


def test_two_models_learn_side_by_side_and_one_is_paused_and_trained_anew(browser: Browser, file: Path):
    with opened(browser, file, viewport=PHONE, bypass_csp=True) as window:  # axe is a script of ours
        window.get_by_role("button", name="A second model beside it").click()
        second = window.locator(".side.rival")
        second.get_by_label("Width").press("ArrowRight")
        second.get_by_role("button", name="One update").click()
        expect(second.locator(".status")).to_have_attribute("data-step", "1")
        second.get_by_role("button", name="Again with another seed").click()
        expect(second.get_by_role("button", name="Trained")).to_be_visible()
        first = window.locator(".side.model .status")
        expect(first).to_contain_text("none of them trained")
        assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for theme in ("light", "dark"):
            window.emulate_media(color_scheme=theme, reduced_motion="reduce")
            assert serious_violations(window) == []


def test_the_keyboard_alone_chooses_a_language_and_trains(browser: Browser, chains: dict[str, Any], tmp_path: Path):
    (tmp_path / "lab.html").write_text(page([chains, {**chains, "title": "Others", "says": "Other texts."}]))
    with opened(browser, tmp_path / "lab.html") as window:
        expect(window.get_by_label("Others")).to_be_visible()
        tab_to(window, "document.activeElement.type === 'radio'")
        window.keyboard.press("ArrowRight")
        expect(window.get_by_text("Other texts.")).to_be_visible()
        tab_to(window, "document.activeElement.textContent === 'One update'")
        window.keyboard.press("Space")
        expect(window.locator(".side .status")).to_have_attribute("data-step", "1")
        window.keyboard.press("Shift+Tab")
        window.keyboard.press("Space")
        expect(window.get_by_role("button", name="Trained")).to_be_visible()
        assert window.evaluate("document.activeElement.textContent") == "Trained"
        expect(window.get_by_role("button", name="One update")).to_be_disabled()


def tab_to(window: Page, condition: str) -> None:
    """Press Tab until what is focused fulfils a condition."""
    for _ in range(20):
        window.keyboard.press("Tab")
        if window.evaluate(condition):
            return
    raise AssertionError(condition)


def workers_begin_with(code: str) -> str:
    """A script for a page that makes each of its workers begin with some code of ours."""
    return f"""globalThis.Blob = class extends Blob {{
        constructor(parts, options) {{
            super(options?.type === "text/javascript" ? [{code!r}, ";", ...parts] : parts, options);
        }}
    }};"""


def test_where_memory_is_refused_one_line_says_so_and_the_next_attempt_is_a_new_one(browser: Browser, file: Path):
    refuse = "if (name === '0') WebAssembly.Memory.prototype.grow = () => { throw new RangeError('refused') }"
    number = (
        "let n = 0; globalThis.Worker = class extends Worker { constructor(of) { super(of, {name: String(n++)}) } };"
    )
    with opened(browser, file, before=number + workers_begin_with(refuse)) as window:
        expect(window.get_by_role("alert")).to_contain_text("no memory is left for it; take a smaller one")
        window.get_by_role("button", name="Train", exact=True).click()
        expect(window.get_by_role("button", name="Trained")).to_be_visible()
        expect(window.get_by_role("alert")).to_be_hidden()


def test_five_trainings_in_one_page_take_the_memory_of_two(browser: Browser, file: Path):
    tell = """const grow = WebAssembly.Memory.prototype.grow;
        WebAssembly.Memory.prototype.grow = function (pages) {
            new BroadcastChannel('grown').postMessage(pages);
            return grow.call(this, pages);
        }"""
    count = "globalThis.grown = 0; new BroadcastChannel('grown').onmessage = ({data}) => { grown += data };"
    with opened(browser, file, before=count + workers_begin_with(" ".join(tell.split()))) as window:
        pages = []
        for _ in range(5):
            window.get_by_role("button", name="Again with another seed").click()
            expect(window.get_by_role("button", name="Trained")).to_be_visible()
            pages.append(window.evaluate("grown"))
        assert pages[0] > 0
        assert pages[1:] == [pages[1]] * 4


def test_a_slow_computer_is_given_a_smaller_model(browser: Browser, tmp_path: Path):
    changes = [*CHANGES, "model.d_model=64", "train.batch_size=8"]
    (tmp_path / "lab.html").write_text(page([language_of(Told("languages/chains", "Chains", "", changes))]))
    slow = "const now = performance.now.bind(performance); performance.now = () => 1e6 * now()"
    with opened(browser, tmp_path / "lab.html", before=workers_begin_with(slow)) as window:
        expect(window.locator(".side .status")).to_contain_text("To save time, width: 32 instead of 64")
        assert window.get_by_label("Width").locator("xpath=following-sibling::output").inner_text() == "32"


def test_a_loss_that_is_no_number_is_said_in_one_line(browser: Browser, chains: dict[str, Any], tmp_path: Path):
    optimizer = {**chains["config"]["optimizer"], "lr": 1e39, "adamw_lr": 1e39}  # beyond float32
    (tmp_path / "lab.html").write_text(page([{**chains, "config": {**chains["config"], "optimizer": optimizer}}]))
    with opened(browser, tmp_path / "lab.html") as window:
        window.get_by_role("button", name="Train", exact=True).click()
        expect(window.get_by_role("alert")).to_contain_text("train again with another seed")


def test_a_model_that_the_page_cannot_train_is_refused():
    with pytest.raises(ConfigError, match="the page trains decoders of one kind"):
        language_of(Told("languages/chains", "Chains", "", [*CHANGES, "model.qk_norm=false"]))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("delete globalThis.WebAssembly", "too old to train"),
        ("WebAssembly.validate = () => false", "too old to train"),
        ("delete globalThis.DecompressionStream", "too old to train"),
        ("globalThis.Worker = class { constructor() { throw new Error('no memory'); } }", "no memory"),
    ],
)
def test_what_a_browser_lacks_is_said_in_one_line(browser: Browser, file: Path, broken: str, says: str):
    window = browser.new_page()
    window.add_init_script(broken)
    window.goto(file.as_uri())
    expect(window.get_by_role("alert")).to_contain_text(says)
    window.close()


def test_the_page_of_a_run_leads_to_the_one_that_trains(browser, fables_run, monkeypatch):
    monkeypatch.setattr(web_lab, "SHIPPED", web_lab.SHIPPED[:1])
    page_that_trains.cache_clear()
    with served(make_app([fables_run])) as (_, port), watched(browser, f"http://127.0.0.1:{port}/") as window:
        settled(window).get_by_role("link", name="In this browser").click()
        window.wait_for_url("**/lab", timeout=120_000)
        window.get_by_role("button", name="One update").click()
        expect(window.locator("#sides .status")).to_contain_text("update 1 of 400", timeout=120_000)
    page_that_trains.cache_clear()
