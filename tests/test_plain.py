"""The page of code and the package compute the same. (Its byte pairs: tests/tokenizer/test_byte_pairs.py.)"""

import ast
import math
import re
import sys
from pathlib import Path

import pytest
import torch

from model_axes import build_away_from_zero
from pellucid import plain
from pellucid.config.model import DecoderConfig
from pellucid.generation.sampling import Sampling, next_token
from pellucid.model.bigram import Bigram
from pellucid.objectives.next_token import cross_entropy
from pellucid.training.optimizers import adamw
from pellucid.training.schedules import cosine

VOCAB_SIZE = 23
PAGE = Path(plain.__file__)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    sizes = {"D_MODEL": 16, "N_HEADS": 2, "N_LAYERS": 2, "CONTEXT": 12, "BATCH": 4, "WARMUP": 5, "TOP_K": 7}
    for name, size in sizes.items():
        monkeypatch.setattr(plain, name, size)


def both_models():
    """Both models with the same weights, in float64, none of them zero."""
    config = DecoderConfig(context_length=12, d_model=16, n_layers=2, n_heads=2, activation="relu_squared")
    package_model = build_away_from_zero(config, vocab_size=VOCAB_SIZE).double()
    page_model = plain.Decoder(VOCAB_SIZE).double()
    page_model.load_state_dict({on_the_page(name): w for name, w in package_model.state_dict().items()})
    return page_model, package_model


def on_the_page(name):
    """blocks.0.attention.sublayer.W_Q.weight -> blocks.0.attention.W_Q.weight, and a sublayer's norm alike."""
    name = re.sub(r"(attention|feed_forward)\.sublayer", r"\1", name)
    return re.sub(r"(attention|feed_forward)\.norm", r"\1_norm", name).removeprefix("embeddings.")


def package_loss(model, rows):
    """Mean over the positions: the package sums, since pieces of a batch may differ in length."""
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).mean()


def test_logits_loss_and_gradients_are_those_of_the_package():
    page_model, package_model = both_models()
    rows = torch.randint(VOCAB_SIZE, (3, 13))
    torch.testing.assert_close(page_model(rows[:, :-1]), package_model(rows[:, :-1]), rtol=0, atol=1e-12)

    page_nats, package_nats = plain.loss(page_model, rows), package_loss(package_model, rows)
    torch.testing.assert_close(page_nats, package_nats, rtol=0, atol=1e-12)
    page_nats.backward()
    package_nats.backward()
    gradients = {on_the_page(name): p.grad for name, p in package_model.named_parameters()}
    for name, parameter in page_model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-12)


def test_updates_are_those_of_the_package():
    """Ten of them: clipping, warmup, the fall of the rate, Adam's two means and weight decay."""
    page_model, package_model = both_models()
    page_optimizer = plain.AdamW(list(page_model.parameters()))
    (package_optimizer,) = adamw(package_model, lr=1.0, betas=plain.BETAS, eps=1e-8, weight_decay=plain.WEIGHT_DECAY)
    for step in range(10):
        rows = torch.randint(VOCAB_SIZE, (4, 13))
        gradients = torch.autograd.grad(100 * plain.loss(page_model, rows), page_optimizer.parameters)
        page_optimizer.step(plain.clip(gradients), plain.learning_rate(step))

        package_optimizer.zero_grad()
        (100 * package_loss(package_model, rows)).backward()
        assert torch.nn.utils.clip_grad_norm_(package_model.parameters(), plain.MAX_GRADIENT_NORM) > 1
        factor = cosine(step, steps=plain.N_STEPS, warmup_steps=plain.WARMUP, final_lr_fraction=0.0)
        for group in package_optimizer.param_groups:
            group["lr"] = plain.PEAK_RATE * factor
        package_optimizer.step()
    for name, weight in package_model.state_dict().items():
        torch.testing.assert_close(page_model.state_dict()[on_the_page(name)], weight, rtol=0, atol=1e-9)


def test_the_same_random_numbers_write_the_same_tokens():
    page_model, package_model = both_models()
    sampling = Sampling(temperature=plain.TEMPERATURE, top_k=plain.TOP_K)
    random, ids = torch.Generator().manual_seed(3), [1]
    while len(ids) < 40:
        with torch.no_grad():
            logits_BV = package_model(torch.tensor([ids[-plain.CONTEXT :]]))[:, -1]
        ids += next_token(logits_BV, sampling, random).tolist()
    assert plain.write(page_model, [1], 39, torch.Generator().manual_seed(3)) == ids
    assert len(set(ids)) > 5


def test_the_first_loss_is_that_of_guessing(monkeypatch):
    monkeypatch.setattr(plain, "D_MODEL", 128)
    rows = torch.randint(768, (8, 13))
    assert plain.loss(plain.Decoder(768), rows).item() == pytest.approx(math.log(768), abs=0.15)


def test_the_bigram_is_that_of_the_package():
    """Equation 33: 1/V is added to each count. The last token of the training text is followed by nothing."""
    train, test = [0, 1, 0, 1, 1], [0, 1, 0, 2, 1]
    counts_VV = torch.zeros(3, 3)
    counts_VV[0, 1], counts_VV[1, 0], counts_VV[1, 1] = 2, 1, 1
    bigram = Bigram(vocab_size=3, context_length=4)
    bigram.set_counts(counts_VV)
    test_row = torch.tensor([test])
    expected = package_loss(bigram, test_row).item()
    assert plain.nats_of_counted_pairs(train, test, vocab_size=3) == pytest.approx(expected, rel=1e-6)


def test_the_bigram_is_scored_on_the_tokens_that_the_decoder_is_scored_on(monkeypatch, tmp_path):
    scored = {}
    monkeypatch.setattr(plain, "loss", lambda model, rows: scored.update(rows=rows) or torch.tensor(0.0))
    monkeypatch.setattr(plain, "train", lambda model, tokens: None)
    monkeypatch.setattr(plain, "nats_of_counted_pairs", lambda train, test, V: scored.update(test=test) or 0.0)
    (tmp_path / "rhyme.txt").write_text("".join(f"{n} foxes. " for n in range(2000)), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["plain", str(tmp_path / "rhyme.txt")])
    plain.main()
    assert scored["test"][1:] == scored["rows"][:, 1:].flatten().tolist()


def test_from_a_text_it_learns_more_than_pairs_and_writes(monkeypatch, tmp_path, capsys):
    for name, size in {"N_MERGES": 40, "N_STEPS": 150, "D_MODEL": 32, "CONTEXT": 32, "PEAK_RATE": 0.01}.items():
        monkeypatch.setattr(plain, name, size)
    rhyme = tmp_path / "rhyme.txt"
    rhyme.write_text("".join(f"{n} foxes and {n} crows. " * 3 for n in range(300)), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["plain", str(rhyme)])
    plain.main()
    said = capsys.readouterr().out
    unseen, pairs = map(float, re.search(r"not seen: ([\d.]+) .* pairs has ([\d.]+)", said).groups())
    assert unseen < pairs - 0.1
    assert "foxes and" in said.split("pairs has")[1]


@pytest.mark.parametrize("arguments", [[], ["no such file"], ["a", "b"]])
def test_without_a_text_it_says_how_it_is_used(arguments, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plain", *arguments])
    with pytest.raises(SystemExit, match=r"usage: python -m pellucid.plain TEXT.txt"):
        plain.main()


def test_a_short_text_is_refused(monkeypatch, tmp_path):
    (tmp_path / "short.txt").write_text("Too short.", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["plain", str(tmp_path / "short.txt")])
    with pytest.raises(SystemExit, match=r"error: .*short.txt: too short; give a text of at least 130 tokens"):
        plain.main()


def test_it_is_one_page_that_needs_pytorch_alone():
    source = PAGE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 300
    tree = ast.walk(ast.parse(source))
    modules = {n.module if isinstance(n, ast.ImportFrom) else n.names[0].name for n in tree if hasattr(n, "names")}
    assert {module.split(".")[0] for module in modules} <= {"torch", *sys.stdlib_module_names}
