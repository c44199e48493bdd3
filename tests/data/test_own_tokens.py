"""What a tool writes is not learned: which tokens these are, and the loss and the floor without them."""

import math
import random
import re
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.data import BytePairConfig, CharacterConfig
from pellucid.config.languages import SumsConfig
from pellucid.data.batches import Batches
from pellucid.data.conversations import own_tokens
from pellucid.data.prepared import prepared
from pellucid.evaluation.loss import evaluate_tokens
from pellucid.generation.environment import tool_of
from pellucid.generation.writing import Writing
from pellucid.languages.sums import Sums
from pellucid.languages.symbols import symbols_of
from pellucid.languages.thoughts import TOOL
from pellucid.model.build import build_model
from pellucid.objectives.next_token import next_token
from pellucid.runtime.precision import resolve_precision
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from tiny import decoder_config

CPU = resolve_precision("cpu", "fp32")
SEEN = [" 0 1 2 3 4 5 6 7 8 9 + = : ?"] * 2
TOKENIZERS = {
    "characters": train_characters(SEEN, special_tokens=["<|end|>"]),
    "byte pairs, symbols in pieces": train_byte_pairs(SEEN, vocab_size=259, special_tokens=["<|end|>"]),
    "byte pairs, whole symbols": train_byte_pairs(SEEN, vocab_size=300, special_tokens=["<|end|>"]),
}


@given(
    st.integers(1, 3),
    st.sampled_from(["forwards", "backwards"]),
    st.integers(0, 10**6),
    st.sampled_from(list(TOKENIZERS.values())),
)
def test_what_is_not_learned_is_what_the_tool_would_write_and_takes_its_skill(digits, order, seed, tokenizer):
    """Said in three ways: by the targets, by the tool while a text is written, and by the skills of its symbols."""
    language = Sums(digits, order, None, "tool")
    text = language.write(random.Random(seed))
    is_own = own_tokens(language, tokenizer, text).tolist()
    ids = [*tokenizer.encode(text), tokenizer.end_of_text]
    config = SumsConfig(type="sums", digits=digits, order=order, thoughts="tool")
    turns, drawn, logits = tool_of(config, tokenizer)([]), [], torch.zeros(tokenizer.vocab_size)
    writing = Writing([tokenizer.end_of_text], 100)
    for id_ in ids:
        constrained = turns.constrain(logits)
        assert constrained[id_] == 0, "the tool contradicts the language"
        drawn.append(bool(constrained.isfinite().all()))
        writing.token_ids.append(id_)
        assert not turns.drops(writing, None)
    assert is_own == drawn == turns.is_own
    skills = [language.skill(state, symbol) for state, symbol in language.steps(text) if symbol]
    theirs = "".join(f" {symbol}" for symbol, skill in zip(symbols_of(text), skills, strict=True) if skill == TOOL)
    assert tokenizer.decode(id_ for id_, own in zip(ids, is_own, strict=True) if not own) == theirs
    assert theirs.count(" ") == 2 * digits


@pytest.fixture(scope="module", params=[BytePairConfig(type="bpe", vocab_size=300), CharacterConfig(type="char")])
def data(request, tmp_path_factory):
    corpus = SumsConfig(type="sums", digits=2, thoughts="tool", size=40, validation_fraction=0.001)
    return prepared(corpus, request.param, tmp_path_factory.mktemp("data"))


def test_loss_and_floor_are_of_the_same_tokens(data):
    """The floor is two free numbers a document, over all tokens but the tool's; so is the loss of a model."""
    n_documents, language = len(data.validation.boundaries) - 1, Sums(2, "forwards", None, "tool")
    assert data.validation.n_losses == data.validation.n_targets - 4 * n_documents * len(data.tokenizer.encode(" 1"))
    floor = n_documents * language.entropy_nats / data.validation.n_losses
    assert data.validation_floor_nats_per_token == pytest.approx(floor)
    model = build_model(decoder_config(context_length=48), data.tokenizer.vocab_size)
    found = evaluate_tokens(
        model, data.validation, data.tokenizer, CPU, truth=data.truth, batch_size=4, from_document_starts=True
    )
    nats = []
    for start, end in zip(data.validation.boundaries, data.validation.boundaries[1:], strict=False):
        ids = torch.tensor(data.validation.tokens[start : end + 1].astype(int))[None]
        own = own_tokens(language, data.tokenizer, data.tokenizer.decode(ids[0, 1:-1].tolist()))
        with torch.inference_mode():
            log_p = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])[0, :, 0]
        nats += (-log_p[torch.from_numpy(own)]).tolist()
    assert (found.n_tokens, found.floor_nats_per_token) == (data.validation.n_losses, pytest.approx(floor))
    assert found.nats == pytest.approx(math.fsum(nats), rel=1e-5)
    assert found.skills.scores[TOOL].tokens == 0


def test_a_batch_learns_all_tokens_but_those_of_the_tool(data):
    """The loss is that of all tokens less that of the tool's, which stand after the question mark."""
    is_own, file, tokenizer = [False], data.train, data.tokenizer
    for start, end in zip(file.boundaries, file.boundaries[1:], strict=False):
        ids = file.tokens[start + 1 : end].tolist()
        text = tokenizer.decode(ids)
        theirs = {place for call in re.finditer(r"(?<=\?) \d \d", text) for place in range(*call.span())}
        assert len(theirs) == 8
        starts = accumulate((len(tokenizer.token_bytes(id_)) for id_ in ids[:-1]), initial=0)
        is_own += [*(start not in theirs for start in starts), True]
    assert file.is_target.tolist() == is_own
    batches = Batches(file, 48, 4, seed=0, packing="documents")
    batch, places_BT = batches.batch(0), batches.places(0)
    model = build_model(decoder_config(context_length=48), tokenizer.vocab_size)
    log_p_BTV = model(batch.inputs_BT).log_softmax(-1)
    learned = [(b, t, place + 1) for (b, t), place in np.ndenumerate(places_BT) if place >= 0 and is_own[place + 1]]
    expected = -sum(log_p_BTV[b, t, int(file.tokens[place])] for b, t, place in learned)
    loss = next_token(model, batch)
    torch.testing.assert_close(loss.sum, expected)
    assert loss.count == len(learned) < (places_BT >= 0).sum()
