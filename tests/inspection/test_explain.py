"""Model against truth: a model that knows the truth loses nothing, and every other one what it should."""

import json
import math
from html import escape

import pytest
import torch
from torch import nn

from listed_corpus import Listed, ListedCorpus
from model.model_axes import build_away_from_zero, tiny_config
from pellucid.corpora.corpus import Piece
from pellucid.errors import ConfigError
from pellucid.evaluation.loss import nats_and_hits
from pellucid.inspection.explain import beginning_that_fits, explain, validation_document
from pellucid.inspection.explanation import NO_TOKEN
from pellucid.tokenizer.pieces import END
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from tiny_fables import all_stories, tiny_fables


class Oracle(nn.Module):
    """Answers with the true distribution of the next token, from the list of all stories."""

    def __init__(self, stories, tokenizer):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))  # a place to ask for the device
        self.vocab_size = tokenizer.vocab_size
        self.stories = [([*tokenizer.encode(text), tokenizer.end_of_text], p) for text, p in stories]

    def forward(self, ids_BT):
        (ids,) = ids_BT.tolist()
        p_TV = torch.zeros(len(ids), self.vocab_size, dtype=torch.float64)
        for story, p in self.stories:
            for t in range(len(ids)):
                if t < len(story) and story[:t] == ids[1 : t + 1]:
                    p_TV[t, story[t]] += p
        return p_TV.log()[None]  # a softmax does not mind that the rows do not sum to 1


class Uniform(nn.Module):
    """Knows nothing: all tokens are equally likely."""

    def __init__(self, vocab_size):
        super().__init__()
        self.logits_V = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, ids_BT):
        return self.logits_V + torch.zeros(*ids_BT.shape, 1)


@pytest.fixture(scope="module")
def language():
    return tiny_fables(0, most=300)


@pytest.fixture(scope="module")
def stories(language):
    return list(all_stories(language.grammar.begin()))


def tokenizer_of(stories, vocab_size):
    return train_byte_pairs([text for text, _ in stories], vocab_size=vocab_size, special_tokens=[END])


@pytest.fixture(scope="module")
def tokenizer(stories):
    """It cuts some words into pieces."""
    return tokenizer_of(stories, 300)


def explained(model, tokenizer, text, language, *, is_document=False, context_length=10_000, n_candidates=5):
    piece = Piece(text, ends_document=is_document)
    return explain(model, tokenizer, piece, language, context_length=context_length, n_candidates=n_candidates)


@pytest.mark.parametrize("vocab_size", [300, 600], ids=["words in pieces", "whole words"])
def test_a_model_that_knows_the_truth_has_no_excess_anywhere(language, stories, vocab_size):
    tokenizer = tokenizer_of(stories, vocab_size)
    oracle = Oracle(stories, tokenizer)
    text, p = stories[len(stories) // 3]
    explanation = explained(oracle, tokenizer, text, language, is_document=True)
    assert "".join(row.text for row in explanation.rows) == text + END
    for row in explanation.rows:
        assert row.excess_nats == pytest.approx(0, abs=1e-5)
        assert row.forecast.kl_nats == pytest.approx(0, abs=1e-5)
        assert row.forecast.forbidden_probability == pytest.approx(0, abs=1e-9)
        assert row.is_hit or row.truth < 0.51, "what is certain is the likeliest"
    assert explanation.floor_nats == pytest.approx(-math.log(p), abs=1e-9)
    assert explanation.floor_nats == pytest.approx(-language.log_probability(text), abs=1e-9)
    assert explanation.loss_nats == pytest.approx(explanation.floor_nats, abs=1e-4)
    assert explanation.notes == []


def test_a_model_that_knows_nothing_loses_the_entropy_of_its_vocabulary_less_that_of_the_truth(
    language, stories, tokenizer
):
    text, _ = stories[0]
    explanation = explained(Uniform(tokenizer.vocab_size), tokenizer, text, language, is_document=True)
    for row in explanation.rows:
        assert row.model_nats == pytest.approx(math.log(tokenizer.vocab_size), rel=1e-6)
        expected = math.log(tokenizer.vocab_size) - row.forecast.truth_entropy_nats
        assert row.forecast.kl_nats == pytest.approx(expected, rel=1e-5)
        assert 0 < row.forecast.forbidden_probability < 1


def test_the_excess_to_expect_at_a_place_is_the_mean_of_what_comes(language, stories, tokenizer):
    """KL(truth ‖ model) against all that may come, token by token."""
    torch.manual_seed(0)
    model = Uniform(tokenizer.vocab_size)
    nn.init.normal_(model.logits_V)
    prefix = stories[0][0].split(" ")[0]
    forecast = explained(model, tokenizer, prefix, language, n_candidates=tokenizer.vocab_size).next
    assert sum(candidate.truth for candidate in forecast.candidates) == pytest.approx(1)
    assert sum(candidate.model for candidate in forecast.candidates) == pytest.approx(1)
    mean = sum(c.truth * math.log(c.truth / c.model) for c in forecast.candidates if c.truth)
    assert forecast.kl_nats == pytest.approx(mean, rel=1e-6)
    entropy = -sum(c.truth * math.log(c.truth) for c in forecast.candidates if c.truth)
    assert forecast.truth_entropy_nats == pytest.approx(entropy, rel=1e-6)
    assert forecast.forbidden_probability == pytest.approx(
        sum(c.model for c in forecast.candidates if not c.truth), rel=1e-6
    )


def test_the_losses_are_those_that_an_evaluation_counts(language, stories, tokenizer):
    torch.manual_seed(1)
    model = Uniform(tokenizer.vocab_size)
    nn.init.normal_(model.logits_V)
    explanation = explained(model, tokenizer, stories[5][0], language, is_document=True)
    targets_T = torch.tensor([row.id for row in explanation.rows])
    nats_T, hits_T = nats_and_hits(model(targets_T), targets_T)
    assert [row.model_nats for row in explanation.rows] == pytest.approx(nats_T.tolist(), rel=1e-5)
    assert [row.is_hit for row in explanation.rows] == hits_T.tolist()


def test_the_skills_of_a_fable_add_up_to_its_loss_and_floor(language, stories, tokenizer):
    explanation = explained(Uniform(tokenizer.vocab_size), tokenizer, stories[7][0], language, is_document=True)
    scores = explanation.skills.scores.values()
    assert sum(score.tokens for score in scores) == pytest.approx(len(explanation.rows))
    assert sum(score.loss_nats for score in scores) == pytest.approx(explanation.loss_nats)
    assert sum(score.floor_nats for score in scores) == pytest.approx(explanation.floor_nats)
    assert all(sum(row.skills.values()) == pytest.approx(1) for row in explanation.rows)


def test_a_prompt_that_cannot_be_written_says_where_it_leaves_the_grammar(language, stories, tokenizer):
    text = stories[0][0]
    begun = text[: text.index(" ", 20)]
    explanation = explained(Oracle(stories, tokenizer), tokenizer, begun + " zzz and on", language)
    (note,) = explanation.notes
    assert note.startswith("the grammar cannot write this: after “")
    assert "but not with “z”" in note
    n_known = len(tokenizer.encode(begun))
    assert [row.truth > 0 for row in explanation.rows[:n_known]] == [True] * n_known
    assert explanation.rows[n_known].truth is None or explanation.rows[n_known].truth == 0
    assert explanation.next.kl_nats is None, "what follows a text that cannot be has no truth"
    assert explanation.floor_nats < math.inf

    after_its_end = explained(Oracle(stories, tokenizer), tokenizer, text + " More.", language)
    assert "the text is over, but here “␣” follows" in after_its_end.notes[0]


def test_a_prompt_that_stops_inside_a_word_is_shown_by_character(language, stories):
    text, tokenizer = stories[0][0], tokenizer_of(stories, 600)
    words = [word for word in text.split(" ") if len(word) > 4 and len(tokenizer.encode(" " + word)) == 1]
    prompt = text[: text.index(" " + words[0]) + 3]
    explanation = explained(Uniform(tokenizer.vocab_size), tokenizer, prompt, language, n_candidates=600)
    assert explanation.next_unit == "character"
    assert "is shown by character" in explanation.notes[0]
    expected = language.next_character_distribution(prompt)
    found = {candidate.text: candidate.truth for candidate in explanation.next.candidates if candidate.truth}
    assert found == pytest.approx(dict(expected))
    assert sum(candidate.model for candidate in explanation.next.candidates) == pytest.approx(1)


def test_a_character_that_the_vocabulary_lacks_has_its_own_line():
    language = Listed({"ab ab": 0.5, "ax ab": 0.25, "xa": 0.25})
    tokenizer = train_characters(["ab ab"], special_tokens=[END])
    explanation = explained(Uniform(tokenizer.vocab_size), tokenizer, "ab ab", language, is_document=True)
    lacking = [c for c in explanation.rows[1].forecast.candidates if c.text == NO_TOKEN]
    assert lacking[0].model == 0
    assert lacking[0].truth == pytest.approx(1 / 3)
    assert explanation.rows[1].forecast.kl_nats == math.inf
    assert NO_TOKEN in explanation.notes[0]
    assert "∞" in explanation.table()
    assert "null" in json.dumps(explanation.to_json()["tokens"][1]["kl_nats"])


def test_a_corpus_without_a_truth_leaves_the_model_alone(stories, tokenizer):
    explanation = explained(Uniform(tokenizer.vocab_size), tokenizer, stories[0][0], None)
    assert "not known" in explanation.notes[0]
    assert explanation.floor_nats is None
    assert explanation.next.kl_nats is None
    table = explanation.table()
    assert "floor" not in table
    assert "KL" not in table


@pytest.mark.parametrize("context_length", [1, 9])
def test_of_a_text_longer_than_the_context_the_words_that_fit_are_read(language, stories, tokenizer, context_length):
    text = stories[0][0]
    read = beginning_that_fits(tokenizer, text, context_length - 1)
    assert text.startswith(read)
    assert len(tokenizer.encode(read)) <= context_length - 1
    model = Uniform(tokenizer.vocab_size)
    explanation = explained(model, tokenizer, text, language, is_document=True, context_length=context_length)
    assert explanation.text == read
    assert "longer than the context" in explanation.notes[-1]
    assert explanation.skills is None


def test_of_a_word_that_is_longer_than_the_context_as_many_characters_are_read_as_fit(tokenizer):
    for word in ("x" * 400, "永" * 200, "the" * 90):
        read = beginning_that_fits(tokenizer, word, 20)
        assert word.startswith(read)
        assert 10 <= len(tokenizer.encode(read)) <= 20
    assert beginning_that_fits(tokenizer, "x", 0) == ""


def test_the_document_of_a_number_is_the_one_held_out():
    corpus = ListedCorpus({"one": 0.25, "two": 0.25, "three": 0.5}, n_validation=2)
    tokenizer = train_characters(["one two three"], special_tokens=[END])
    assert validation_document(corpus, 1, tokenizer, 100).text == "two"
    assert validation_document(corpus, 2, tokenizer, 100).text == "three"
    with pytest.raises(ConfigError, match="3 is more than the 2 that are held out"):
        validation_document(corpus, 3, tokenizer, 100)


class LongDocument(ListedCorpus):
    """A document in pieces, as a text file gives it."""

    def pieces(self, split):
        yield Piece("another", ends_document=True)
        yield from (Piece(" ab" * 4, ends_document=False) for _ in range(5))
        yield Piece(" ab", ends_document=True)


@pytest.mark.parametrize(("context_length", "n_read", "is_whole"), [(10, 9, False), (30, 27, False), (100, 63, True)])
def test_a_document_in_pieces_is_read_to_the_end_of_the_context(context_length, n_read, is_whole):
    tokenizer = train_characters([" ab"], special_tokens=[END])
    document = validation_document(LongDocument(dict.fromkeys("ab", 0.5)), 2, tokenizer, context_length)
    explanation = explain(
        Uniform(tokenizer.vocab_size), tokenizer, document, None, context_length=context_length, n_candidates=3
    )
    assert len(explanation.text) == n_read
    assert explanation.is_whole == is_whole
    told = "longer than the context of the model: this is about its first"
    assert [note for note in explanation.notes if f"{told} {n_read} tokens" in note] == explanation.notes[1:]
    assert len(explanation.notes) == (1 if is_whole else 2)


def test_the_mode_of_the_model_comes_back_when_reading_fails(stories, tokenizer):
    model = Uniform(tokenizer.vocab_size).train()
    model.register_forward_pre_hook(lambda module, _: 1 / module.training)  # it is off meanwhile: 1 / 0
    with pytest.raises(ZeroDivisionError):
        explained(model, tokenizer, stories[0][0], None)
    assert model.training


def test_the_table_has_a_row_per_token_and_fits_a_terminal(language, stories, tokenizer):
    explanation = explained(Oracle(stories, tokenizer), tokenizer, stories[0][0], language, is_document=True)
    table = explanation.table()
    assert all(len(line) <= 100 for line in table.splitlines())
    assert len(table.splitlines()) > len(explanation.rows)
    assert f"loss {explanation.loss_nats:.3f} nats = floor {explanation.floor_nats:.3f}" in table
    assert "\033" not in table
    assert explanation._repr_html_() == f"<pre>{escape(table)}</pre>"
    assert "the next token" not in table, "the end is among the rows, so nothing is left to come"


def test_each_token_shows_the_experts_that_it_asks_in_each_layer(language, stories, tokenizer):
    moe = {"type": "moe", "n_experts": 5, "top_k": 2}
    model = build_away_from_zero(tiny_config(context_length=2000, feed_forward=moe), tokenizer.vocab_size)
    explanation = explained(model, tokenizer, stories[0][0], language, is_document=True, context_length=2000)
    ids = [tokenizer.end_of_text, *(row.id for row in explanation.rows[:-1])]
    heard = []
    for block in model.blocks:
        block.feed_forward.sublayer.router.register_forward_hook(lambda _, __, p_BTE: heard.append(p_BTE[0]))
    model(torch.tensor([ids]))
    for t, row in enumerate(explanation.rows[:-1]):
        assert row.experts == [p_TE[t + 1].topk(2).indices.tolist() for p_TE in heard]
        (first, second), (third, fourth) = row.experts
        assert explanation.cells(row)["experts"] == f"{first}+{second} {third}+{fourth}"
    assert explanation.rows[-1].experts is None  # the end of the document is never read
    table = explanation.table()
    assert explanation.cells(explanation.rows[0])["experts"] in table
    assert explanation.to_json()["tokens"][0]["experts"] == explanation.rows[0].experts
