"""The exported page opens from file://, asks nobody for anything, and shows what PyTorch computes."""

import base64
import gzip
import json
import re
from contextlib import contextmanager
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from measurements.page import typing
from playwright.sync_api import expect

from browsing import LAPTOP
from edits import OF_THE_MODEL, edit
from pellucid import load, train
from pellucid.errors import ConfigError
from pellucid.inspection.build import knock_out_run
from pellucid.inspection.explain import beginning_that_fits
from pellucid.inspection.logit_parts import logit_parts
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.export import LEAST_PROBABILITY, STATIC, browser_model, export_page, likely_logits
from pellucid.web.microscope import Microscope
from pellucid.web.schemas import N_FABLES

TYPED = "Once upon a time there was a fox"


@pytest.fixture(scope="module")
def file(fables_run, tmp_path_factory):
    file = tmp_path_factory.mktemp("export") / "page.html"
    assert export_page([fables_run], file) is None
    return file


@contextmanager
def opened(browser, file):
    """A window on the file. Whatever it asks for, and whatever goes wrong in it, is an error at its end."""
    page, wrong = browser.new_page(viewport=LAPTOP), []
    page.on(
        "request", lambda request: wrong.append(request.url[:100]) if request.url[:5] not in ("file:", "data:") else 0
    )
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else 0)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector(".token")
    yield page
    page.close()
    assert wrong == []


def shown(page, text, checkpoint="fables@4"):
    """Waits until the page shows this text; what it holds of the trace."""
    page.wait_for_function(
        "([text, checkpoint]) => microscope.trace?.text === text && microscope.trace.checkpoint === checkpoint"
        " && microscope.logits",
        arg=[text, checkpoint],
    )
    return page.evaluate("""() => {
        const { trace, logits } = microscope;
        const list = (x) => Array.from(x.values);
        return {
            ids: trace.ids, points: trace.points, attention: list(trace.attention), surprise: list(trace.surprise),
            lensIds: list(trace.lens.ids), probabilities: list(trace.lens.probabilities), kl: list(trace.lens.kl),
            at: logits.at, logits: list(logits.logits),
        };
    }""")


def traced(run_dir, text, step=4, half=True, **options):
    """The same in PyTorch. half: with the weights that float16 keeps."""
    return (as_in_the_file(run_dir, step) if half else load(run_dir, step)).trace(text, **options)


def as_in_the_file(run_dir, step=4):
    run = load(run_dir, step)
    for parameter in run.model.parameters():
        parameter.data = parameter.data.half().float()
    return run


def test_one_part_of_a_file_can_be_embedded(browser, file):
    page = browser.new_page(viewport=LAPTOP)
    page.goto(f"{file.as_uri()}?only=attention#at=3")
    page.wait_for_selector("#part-attention canvas")
    for hidden in ("header", "nav", "footer", "#part-machine", "#part-next"):
        assert not page.locator(hidden).first.is_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="save picture: 3 Attention").click()
    says = ElementTree.parse(download.value.path()).getroot()[1].text
    assert ". page.html?only=attention#" in says  # in which folder is nobody's business
    page.goto(f"{file.as_uri()}?only=nothing")
    page.wait_for_selector("#part-machine .token, #part-text .token")
    assert page.locator("#part-next").is_visible()
    page.close()


def check(page_trace, trace, at=-1, atol=1e-4):
    log_q_NTV = trace.logits.log_softmax(-1)
    end_TV = log_q_NTV[-1]
    close = {
        "attention": trace.attention,
        "surprise": -end_TV[:-1].gather(-1, torch.tensor(trace.ids[1:])[:, None]),
        "probabilities": log_q_NTV.max(-1).values.exp(),
        "kl": (end_TV.exp() * (end_TV - log_q_NTV)).sum(-1),
    }
    assert page_trace["ids"] == trace.ids
    assert page_trace["points"] == trace.points
    for name, expected in close.items():
        np.testing.assert_allclose(page_trace[name], expected.flatten(), atol=atol, err_msg=name)
    lens_ids = torch.tensor(page_trace["lensIds"]).long().view(len(trace.points), -1)
    np.testing.assert_allclose(log_q_NTV.gather(-1, lens_ids[..., None])[..., 0], log_q_NTV.max(-1).values, atol=atol)
    return np.array(page_trace["logits"]).reshape(len(trace.points), -1), trace.logits[:, at]


def test_a_file_shows_of_any_text_what_pytorch_computes(browser, file, fables_run):
    def compare(text, at=-1, **options):
        logits, expected = check(shown(page, text), traced(fables_run, text, **options), at=at)
        np.testing.assert_allclose(logits, expected, atol=1e-4)
        assert_parts(page, fables_run, traced(fables_run, text, **options), at)
        return expected

    with opened(browser, file) as page:
        assert_it_has_what_the_run_wrote_and_measured(page, fables_run)
        for text in (TYPED + " who had", TYPED[:-4], TYPED[:-4] + "crow and a hen", TYPED):
            page.fill("#text", text)  # what stays of the text before is not computed again
            expected = compare(text)
        page_trace, tokens = shown(page, TYPED), page.locator("#part-text .token")
        expect(tokens).to_have_count(len(page_trace["ids"]))
        surprise = float(tokens.last.get_attribute("data-value"))
        assert surprise == pytest.approx(page_trace["surprise"][-1], abs=1e-6)
        cell = page.locator(f'[data-point="4"][data-place="{len(page_trace["ids"]) - 1}"]')
        assert float(cell.get_attribute("data-value")) == pytest.approx(float(expected[-1].softmax(-1).max()), abs=1e-4)
        expect(page.locator("#part-next .verdict")).to_contain_text("This file knows the truth only for its examples")
        expect(page.locator("#part-next .verdict code")).to_have_text("pellucid serve")

        tokens.nth(2).click()
        page.wait_for_function("() => microscope.logits.at === 2")
        compare(TYPED, at=2)
        page.evaluate("microscope.store.set({ at: -1 })")

        page.locator('.switches [data-part="1.0"]').click()
        page.locator('.switches [data-part="f0"]').click()
        page.wait_for_function("() => microscope.state.off === '1.0 f0' && microscope.base !== microscope.trace")
        page.wait_for_function("() => microscope.logits.at !== 2")
        compare(TYPED, knock_out=[("head", 1, 0), ("feed_forward", 0)])

        other = "Once a fox upon there was a time"  # the same words, and as many tokens
        page.evaluate("microscope.seen = microscope.trace")
        page.evaluate("other => microscope.store.set({ off: '1.0 a0', instead: other })", other)
        page.wait_for_function("() => microscope.trace !== microscope.seen")
        patched = compare(TYPED, patch=dict.fromkeys([("head", 1, 0), ("attention", 0)], traced(fables_run, other)))
        assert (patched - traced(fables_run, TYPED).logits[:, -1]).abs().max() > 1e-3
        page.evaluate("microscope.store.set({ instead: 'another length' })")
        expect(page.locator("#problem")).to_contain_text("choose one of as many")

        word, asked = "永x🦊" * 99, "(asked) => microscope.source.trace(asked)"
        cut = page.evaluate(asked, {"text": word, "checkpoint": "fables@4"})
        assert cut["text"] == beginning_that_fits(load(fables_run, 4).tokenizer, word, 255)


def assert_parts(page, fables_run, trace, at):
    """What each part adds to the likeliest tokens is what PyTorch finds, with the weights as they are in the file."""
    added = page.evaluate("""() => {
        const { ids, parts, heads, bias } = microscope.logits.added;
        return { ids, parts: [...parts.values], heads: [...heads.values], bias: [...bias.values] };
    }""")
    expected = logit_parts(as_in_the_file(fables_run).model, trace, at % len(trace.ids), added["ids"])
    for name, tensor in expected._asdict().items():
        np.testing.assert_allclose(added[name], tensor.flatten(), atol=1e-4, equal_nan=True, err_msg=name)


def assert_it_has_what_the_run_wrote_and_measured(page, fables_run):
    methods = """async () => {
        const { serverSource } = await import("pellucid/source_server.js");
        return [serverSource(), microscope.source].map((source) => Object.keys(source));
    }"""
    of_server, of_file = page.evaluate(methods)
    assert of_file == of_server
    expect(page.locator(".samples h3")).to_have_text("What it wrote after 4 steps")
    assert page.locator(".samples blockquote").count() > 0
    page.wait_for_function("() => microscope.table && microscope.truth?.known")
    expect(page.locator("#part-next .verdict")).to_contain_text("a fable can begin like this")
    expect(page.locator("#measure")).to_be_hidden()
    table = page.evaluate("microscope.table")
    measured = knock_out_run(load(fables_run, 4).trained, None, n_documents=N_FABLES).to_json()
    assert (table["knocked_out"], table["intact"]) == (measured["knocked_out"], measured["intact"])


def test_an_older_checkpoint_is_shown_on_the_recorded_text_as_pytorch_computes_it(browser, file, fables_run):
    with opened(browser, file) as page:
        text = page.evaluate("microscope.trace.text")
        for step in (4, 2):
            page.evaluate(f"microscope.store.set({{ checkpoint: 'fables@{step}', head: '1.0', inside: true, at: 5 }})")
            page.wait_for_function(
                "step => microscope.inside?.layer === 1 && microscope.trace.checkpoint === `fables@${step}`"
                " && microscope.logits.at === 5",
                arg=step,
            )
            assert_inside(page, traced(fables_run, text, step, half=step == 4).inside(1))
        trace = traced(fables_run, text, step=2, half=False)
        logits, expected = check(shown(page, text, "fables@2"), trace, at=5, atol=1e-3)
        probabilities = torch.tensor(logits).softmax(-1)
        np.testing.assert_allclose(probabilities, expected.softmax(-1), atol=LEAST_PROBABILITY)
        best = expected.topk(10).indices
        np.testing.assert_allclose(torch.tensor(logits).gather(-1, best), expected.gather(-1, best), atol=1e-5)

        page.fill("#text", TYPED)
        expect(page.locator("#problem")).to_contain_text("For fables@2, this file holds only one text: ")
        expect(page.locator("#problem")).to_contain_text("Choose fables@4, which runs in your browser.")


def assert_inside(page, expected):
    steps = page.evaluate("""() => microscope.inside.steps.map(({ values: { shape, values }, ...step }) =>
        ({ ...step, shape, values: Array.from(values, (x) => `${x}`.toLowerCase()).join(" ") }))""")
    assert [each["name"] for each in steps] == [each.name for each in expected]
    for shown_step, true in zip(steps, expected, strict=True):
        described = (shown_step["sublayer"], shown_step["axes"], shown_step["shape"], shown_step["equations"])
        assert described == (true.sublayer, true.axes, list(true.values.shape), list(true.equations))
        values = np.array(shown_step["values"].replace("infinity", "inf").split(), dtype=float)
        np.testing.assert_allclose(values, true.values.flatten(), rtol=1e-3, atol=1e-3, err_msg=true.name)


@pytest.fixture
def measured_little(monkeypatch):
    """A file in whose table nobody looks is measured on two fables."""
    monkeypatch.setattr("pellucid.web.export.N_FABLES", 2)


def test_a_prompt_to_explain_is_what_the_page_opens_with(fables_run, tmp_path, measured_little, pellucid):
    options = ("--checkpoint", "2", "--prompt", TYPED, "--html", tmp_path / "page.html")
    assert pellucid("explain", fables_run, *options).exit_code == 0
    recorded = record_of(tmp_path / "page.html")
    assert (recorded["text"], recorded["latest"]) == (TYPED, "fables@2")


def test_a_file_is_little_more_than_the_page_its_weights_and_what_was_recorded(file, fables_run):
    run = load(fables_run)
    n_weights = sum(parameter.numel() for parameter in run.model.parameters())
    trace = load(fables_run, 2).trace(record_of(file)["text"])
    n_inside = sum(step.values.numel() for layer in (0, 1) for step in trace.inside(layer))
    n_lens = 3 * trace.logits[..., 0].numel() + 2 * int((trace.logits.softmax(-1) >= LEAST_PROBABILITY).sum())
    n_bytes = 2 * n_weights + 2 * n_inside + 2 * trace.attention.numel() + 4 * n_lens
    static = sum(path.stat().st_size for path in STATIC.iterdir())
    assert file.stat().st_size < 4 / 3 * (1.1 * n_bytes + static) + 60_000  # vocabulary, truths, documents, metrics


def record_of(file):
    """What was recorded, as the page reads it."""
    [compressed] = re.findall('id="recorded">([^<]*)<', file.read_text(encoding="utf-8"))
    return json.loads(gzip.decompress(base64.b64decode(compressed)))


def test_unlikely_tokens_share_what_the_likely_ones_leave():
    logits_NTV = 3 * torch.randn(2, 3, 400, generator=torch.Generator().manual_seed(0))
    kept = {name: unpacked(tensor) for name, tensor in likely_logits(logits_NTV, [[7], [], [8, -1]]).items()}
    found_CV = np.repeat(kept["rest"].reshape(-1, 1), 400, axis=1)
    cells = np.repeat(np.arange(6), kept["counts"].flatten())
    found_CV[cells, kept["ids"]] = kept["values"]
    p_CV, q_CV = (torch.as_tensor(logits).reshape(6, 400).softmax(-1) for logits in (logits_NTV, found_CV))
    torch.testing.assert_close(q_CV, p_CV, rtol=0, atol=LEAST_PROBABILITY)
    is_kept_CV = p_CV >= LEAST_PROBABILITY
    is_kept_CV[[0, 3], 7] = is_kept_CV[[2, 5], 8] = True
    torch.testing.assert_close(q_CV[is_kept_CV], p_CV[is_kept_CV], rtol=1e-5, atol=0)
    assert 10 < len(kept["ids"]) / 6 < 200


def unpacked(tensor):
    return np.frombuffer(base64.b64decode(tensor["data"]), tensor["dtype"]).reshape(tensor["shape"])


def test_a_model_that_no_browser_runs_is_shown_on_the_recorded_text(
    browser, fables_run, lstm_run, tmp_path, measured_little
):
    assert export_page([lstm_run], tmp_path / "page.html", TYPED) == "a model of type lstm"
    changes = {"model.attention": "linear", "model.position": {"type": "none"}}
    train(
        fables_run / "config.yaml", tmp_path / "linear", overrides=changes, steps=1, data_dir=fables_run.parent / "data"
    )
    assert export_page([tmp_path / "linear"], tmp_path / "page.html", TYPED) == "linear attention"
    with opened(browser, tmp_path / "page.html") as page:
        logits, expected = check(shown(page, TYPED, "linear@1"), load(tmp_path / "linear").trace(TYPED), atol=1e-3)
        np.testing.assert_allclose(torch.tensor(logits).softmax(-1), expected.softmax(-1), atol=LEAST_PROBABILITY)
        page.fill("#text", "Another text")
        words = "For linear@1, this file holds only one text: “Once upon a time there was a fox…”."
        expect(page.locator("#problem")).to_have_text(words)


def test_an_edited_model_is_recorded_as_it_computes_for_no_browser_knows_the_edit(fables_run, monkeypatch):
    for name in OF_THE_MODEL:
        with monkeypatch.context() as patch:
            edit(patch, name)
            is_live = browser_model(Microscope([fables_run]), "fables@4", TYPED) is not None
        assert is_live == (name == "relu_squared")  # of which this model, with GELU, has none


def test_a_model_of_conversations_reads_a_text_in_its_template_in_a_file_too(browser, chat_run, tmp_path):
    assert export_page([chat_run], tmp_path / "page.html", TYPED) is None
    with opened(browser, tmp_path / "page.html") as page:
        assert shown(page, TYPED, "chat@1")["ids"] == prompt_ids(load(chat_run).tokenizer, [("user", TYPED)])
        expect(page.locator("#part-text")).not_to_contain_text("tokens at most")
        cut = page.evaluate("(asked) => microscope.source.trace(asked)", {"text": "ab " * 300, "checkpoint": "chat@1"})
        assert cut["is_cut"]
        assert len(cut["ids"]) == 256
        assert cut["text"].startswith("<|user|>ab ab")


def test_the_command_says_what_it_wrote_and_what_is_missing(fables_run, tmp_path, pellucid, monkeypatch):
    monkeypatch.setattr("pellucid.web.export.record", lambda *_: {"latest": "fables@4", "text": "", "browser": None})
    monkeypatch.setattr("pellucid.web.export.unsupported_part", lambda _: "linear attention")
    done = pellucid("serve", fables_run, "--export", tmp_path / "page.html", "--prompt", "Once")
    words = f"{tmp_path}/page.html: no text can be typed, because model.js does not know linear attention; "
    assert (done.exit_code, done.stdout) == (0, ""), done
    assert re.fullmatch(rf"wrote {tmp_path}/page.html, \d+\.\d MB\n{words}it shows the recorded one\n", done.stderr)


@pytest.mark.parametrize(
    ("words", "exit_code", "what"),
    [
        (("RUN", "--prompt", "Once"), 2, "--prompt is for --export"),
        (("RUN", "--train", "debug", "--export", "page.html"), 2, "--export is for runs that are there"),
        (("none", "--export", "page.html"), 4, "no such run"),
        (("RUN", "--export", "page.html", "--checkpoint", "4", "--port", "1"), 2, "leave out --checkpoint, --port"),
        (("RUN", "--export", "none/page.html"), 5, "there is no folder none"),
        (("RUN", "--export", "."), 5, "this is a folder"),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line(fables_run, pellucid, words, exit_code, what):
    done = pellucid("serve", *[fables_run if word == "RUN" else word for word in words])
    assert (done.exit_code, done.stderr.count("\n")) == (exit_code, 1), done
    assert what in done.stderr


def test_without_a_text_to_record_the_cure_is_named(fables_run, tmp_path, monkeypatch):
    monkeypatch.setattr("pellucid.web.runs.Runs.examples", lambda *_: [])
    with pytest.raises(ConfigError, match=re.escape("give --prompt TEXT")):
        export_page([fables_run], tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_keystroke_in_a_file_is_timed(browser, file, fables_run, monkeypatch):
    """As `scripts/measure.py page` does it."""
    monkeypatch.setattr("measurements.page.WARM_UP", 0)
    figures = typing(browser, file.as_uri(), 2)
    assert figures["parameters"] == sum(weights.numel() for weights in load(fables_run).model.parameters())
    assert figures["keystroke to redrawn (ms)"] > 0


def test_a_run_that_fills_gaps_cannot_be_exported(gaps_run, tmp_path):
    with pytest.raises(ConfigError, match="gaps fills gaps from both sides") as caught:
        export_page([gaps_run], tmp_path / "page.html")
    assert caught.value.exit_code == 2
