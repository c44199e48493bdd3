"""Texts of a form: a mask allows what can be completed, and drafts follow the model, given the form (equation 56)."""

import itertools
import random

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from pellucid.errors import ConfigError
from pellucid.generation import constraints
from pellucid.generation.constraints import Exactly, Masked
from pellucid.generation.engine import Engine
from pellucid.generation.grammar_form import GrammarForm
from pellucid.generation.sampling import Sampling
from pellucid.generation.slots import make_slots
from pellucid.generation.stream import TextStream
from pellucid.generation.writing import Writing
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.languages.grammar.portrait import all_texts
from pellucid.model.bigram import Bigram
from pellucid.model.language_model import LanguageModel
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.train import train_byte_pairs, train_characters

SIGNIFICANCE = 1e-4
SPOKEN = OwnGrammar(
    """
speech
    2 Hello, [who:name]! [reply]
    1 Hé [who:name]. [reply]

name
    3 Ada
    1 Bea
    1 Éva

reply
    1 Bye, {who}.
    2 So long, [other:name!who] 🦊
""",
    "spoken",
)
LETTERS = OwnGrammar("word\n    1 a[end]\n    1 b[end]y\n    1 yy[end]\nend\n    1 x\n    1 by\n    1 ybx\n", "letters")
END = "<|endoftext|>"
ABXY = train_characters(["abxy"], special_tokens=[END])
PROMPT = [ABXY.end_of_text]


def unlucky_model() -> Bigram:
    """After a, x hardly ever comes; after b, nearly always."""
    model = Bigram(ABXY.vocab_size, 8)
    end, a, b, x, y = (ABXY.end_of_text, *(ABXY.encode(letter)[0] for letter in "abxy"))
    p_VV = torch.full((5, 5), 1e-9)
    p_VV[end, [a, b]] = 0.5
    p_VV[a, [x, y]], p_VV[b, [x, y]] = torch.tensor([0.02, 0.98]), torch.tensor([0.98, 0.02])
    p_VV[[x, y], end] = 1.0
    model.logits_VV.data = p_VV.log()
    return model


@torch.no_grad()
def p_of(model: LanguageModel, text: str, temperature: float = 1.0, form: GrammarForm | None = None) -> float:
    """p(text and its end), token by token; behind a mask, if there is a form."""
    beginning, p = form and form.begin(), 1.0
    ids = [*ABXY.encode(text), ABXY.end_of_text]
    for t, id_ in enumerate(ids):
        p_V = (model(torch.tensor([[*PROMPT, *ids[:t]]]))[0, -1].double() / temperature).softmax(dim=-1)
        if beginning:
            p_V = p_V * beginning.allowed() / p_V[beginning.allowed()].sum()
            if id_ != ABXY.end_of_text:
                beginning.add(id_)
        p *= p_V[id_].item()
    return p


def written(model: LanguageModel, writings: list[Writing]) -> list[str]:
    """The texts, written in slots; those that come to no end have an error instead."""
    engine = Engine(model.eval(), make_slots(model, 16), stop_ids=ABXY.stop_ids)
    for writing in writings:
        engine.add(writing)
    while not engine.is_idle:
        engine.step()
    assert all(writing.error or writing.finish_reason == "end_of_text" for writing in writings)
    return ["".join(piece.text for piece in writing.pieces) for writing in writings]


def drawn(model: LanguageModel, n: int, most: int, constraint_of, temperature: float = 1.0) -> list[str]:
    sampling = Sampling(temperature)
    options = [{"text": TextStream(ABXY), "constraint": constraint_of(i), "seed": (0, i)} for i in range(n)]
    return written(model, [Writing(PROMPT, most, sampling, **option) for option in options])


def assert_drawn_from(texts: list[str], p: dict[str, float]) -> None:
    """By a chi-square test. Rare texts count as one kind."""
    assert set(texts) <= p.keys()
    expected = np.array([*p.values()]) * len(texts) / sum(p.values())
    counts, is_rare = np.array([texts.count(text) for text in p]), expected < 5
    expected, counts = (np.array([*each[~is_rare], each[is_rare].sum()]) for each in (expected, counts))
    assert ((counts - expected) ** 2 / np.maximum(expected, 1)).sum() < chi2.isf(SIGNIFICANCE, len(counts) - 1)


def test_equation_56_a_mask_is_wrong_and_drafts_are_right_where_beginnings_differ():
    """ax and bx: the mask writes each of them half of the time, the model 49 times as often bx."""
    model, form = unlucky_model(), GrammarForm(OwnGrammar("word\n    1 ax\n    1 bx\n", "two").grammar, ABXY)
    masked, given = ({text: p_of(model, text, form=by) for text in ("ax", "bx")} for by in (form, None))
    assert masked == pytest.approx({"ax": 0.5, "bx": 0.5})
    p_form = sum(given.values())
    assert {text: p / p_form for text, p in given.items()} == pytest.approx({"ax": 0.02, "bx": 0.98})
    assert_drawn_from(drawn(model, 100, 8, lambda _: Masked(form)), masked)
    assert_drawn_from(drawn(model, 100, 8, lambda i: Exactly(form, 1.0, (i, 1))), given)


@pytest.mark.parametrize(("temperature", "most"), [(1.0, 9), (3.0, 4)])
def test_equation_56_what_is_kept_follows_the_model_given_the_form_and_the_length(make_decoder, temperature, most):
    model, form = make_decoder(vocab_size=ABXY.vocab_size), GrammarForm(LETTERS.grammar, ABXY)
    p = {text: p_of(model, text, temperature) for text in all_texts(LETTERS) if len(text) < most}
    kept = drawn(model, 60, most, lambda i: Exactly(form, temperature, (i, 1)), temperature)
    assert_drawn_from(kept, p)


def test_equation_56_the_mean_of_the_masses_that_a_mask_leaves_is_the_share_of_texts_that_fit(make_decoder):
    model, form = make_decoder(vocab_size=ABXY.vocab_size), GrammarForm(LETTERS.grammar, ABXY)
    masked = {text: p_of(model, text, form=form) for text in all_texts(LETTERS)}
    assert sum(masked.values()) == pytest.approx(1.0)
    p = {text: p_of(model, text) for text in masked}
    assert sum(q * (p[text] / q) for text, q in masked.items()) == pytest.approx(sum(p.values()))
    assert all(p[text] <= q for text, q in masked.items()), "so the product of the masses is a probability"


def test_what_was_found_out_about_beginnings_saves_drafts():
    """Of a million texts of this model one fits, and yet few drafts are needed."""
    model, form = unlucky_model(), GrammarForm(OwnGrammar("word\n    1 yxa\n    1 xxb\n", "rare").grammar, ABXY)
    drafts = Exactly(form, 1.0, (0,))
    [text] = drawn(model, 1, 8, lambda _: drafts)
    assert text in ("yxa", "xxb")
    assert drafts.n_drafts < 20
    assert sum(p_of(model, text) for text in ("yxa", "xxb")) < 1e-6


def test_a_form_that_the_model_hardly_has_ends_in_an_error(make_decoder, monkeypatch):
    model, letters = make_decoder(vocab_size=ABXY.vocab_size), "".join(f"    1 {letter}\n" for letter in "abxy")
    many, one = f"word\n    1 {'[l]' * 8}\nl\n{letters}", "word\n    1 abxyabxy\n"
    too_rare, too_long = (many, 11, 3, "none of 3 drafts was kept"), (one, 6, 99, r"none of \d drafts was kept; 0 of")
    for rules, most, most_drafts, what in (too_rare, too_long):
        monkeypatch.setattr(constraints, "MOST_DRAFTS", most_drafts)
        form = GrammarForm(OwnGrammar(rules, "word").grammar, ABXY)
        writing = Writing(PROMPT, most, text=TextStream(ABXY), constraint=Exactly(form, 1.0, (5,)))
        written(model, [writing])
        with pytest.raises(ConfigError, match=what):
            raise writing.error  # type: ignore[misc]


def test_neighbours_are_written_as_alone(make_decoder):
    model, form = make_decoder(vocab_size=ABXY.vocab_size), GrammarForm(LETTERS.grammar, ABXY)

    def free(i: int) -> Writing:
        return Writing(PROMPT, 7, seed=(7, i))

    alone = [free(i) for i in range(3)]
    engine_of = Engine(model.eval(), make_slots(model, 16), stop_ids=())
    for writing in alone:
        engine_of.add(writing)
    while not engine_of.is_idle:
        engine_of.step()
    crowd = [free(i) for i in range(3)]
    held = [Writing(PROMPT, 9, text=TextStream(ABXY), constraint=Exactly(form, 1.0, (i, 1))) for i in range(5)]
    engine = Engine(model, make_slots(model, 16), stop_ids=())
    for writing in itertools.chain(*itertools.zip_longest(crowd, held)):
        if writing:
            engine.add(writing)
    while not all(writing.has_ended for writing in crowd):
        engine.step()
    assert [writing.token_ids for writing in crowd] == [writing.token_ids for writing in alone]


def naively_allowed(texts: list[bytes], before: bytes, tokenizer: Tokenizer) -> set[int]:
    on = {text[len(before) :] for text in texts if text.startswith(before)}
    spelled = {id_: tokenizer.token_bytes(id_) for id_ in range(tokenizer.vocab_size)}
    going_on = {id_ for id_, token in spelled.items() if token and any(text.startswith(token) for text in on)}
    return going_on | (set(tokenizer.stop_ids) if b"" in on else set())


def spoken_byte_pairs() -> Tokenizer:
    """Some of its tokens are parts of a character, and it has two that end a text."""
    return train_byte_pairs([*all_texts(SPOKEN)] * 3, vocab_size=300, special_tokens=[END, "<|end|>"])


@pytest.mark.parametrize(
    "tokenizer", [spoken_byte_pairs(), train_characters([*all_texts(SPOKEN)], special_tokens=[END])]
)
def test_the_tokens_allowed_are_those_with_which_some_text_goes_on(tokenizer):
    texts, rng = [text.encode() for text in all_texts(SPOKEN)], random.Random(0)
    form = GrammarForm(SPOKEN.grammar, tokenizer)
    for _ in range(20):
        beginning, written = form.begin(), b""
        while (allowed := set(beginning.allowed().nonzero()[:, 0].tolist())) != set(tokenizer.stop_ids):
            assert allowed == naively_allowed(texts, written, tokenizer)
            id_ = rng.choice(sorted(allowed))
            beginning.add(id_)
            written += tokenizer.token_bytes(id_)
        assert written in texts


def test_a_mask_says_so_where_the_vocabulary_lacks_what_must_come():
    form = GrammarForm(OwnGrammar("word\n    1 xü\n", "umlaut").grammar, ABXY)
    writing = Writing(PROMPT, 9, text=TextStream(ABXY), constraint=Masked(form))
    assert written(unlucky_model(), [writing]) == ["x"]
    with pytest.raises(ConfigError, match="no token of the vocabulary goes on"):
        raise writing.error  # type: ignore[misc]
