"""Measures of many experiments besides the loss: skills on other texts, and other context lengths."""

import math

import pytest
import torch

from pellucid.data.truth import next_token_distributions
from pellucid.errors import ConfigError
from pellucid.experiments.measures import divergence_from_truth, on_other_texts, with_context_length
from pellucid.recipe import evaluate

CHAINS = "corpus={type: chains, length: 8, size: 400, validation_fraction: 0.1}"


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "none", "learned"])
def test_another_context_length_changes_no_logit_within_it(untrained, position):
    trained = untrained(f"model.position={{type: {position}}}").trained
    tokens_BT = torch.randint(0, 300, (2, 16))
    assert torch.equal(with_context_length(trained, 16)(tokens_BT), trained.model(tokens_BT))


def test_on_its_own_text_a_model_has_the_skills_of_its_evaluation(untrained):
    run = untrained(CHAINS, texts={"own": []})
    skills = evaluate(run.config, run.data, run.trained.model, run.precision).skills.to_json()
    assert on_other_texts(run) == {"own": skills}


def test_pairs_of_sums_that_training_never_shows_do_not_tell_what_is_impossible(untrained):
    for corpus, is_told in (("sums, digits: 1, size: 50", False), ("chains, length: 20, size: 200", True)):
        run = untrained(f"corpus={{type: {corpus}, validation_fraction: 0.1}}")
        evaluation = evaluate(run.config, run.data, run.trained.model, run.precision)
        assert (evaluation.impossible is not None) == is_told
        assert evaluation.left_to_learn is not None


def test_other_texts_have_no_symbols_that_were_never_trained_on(untrained):
    with pytest.raises(ConfigError, match="measures.texts.more: .* are not in the training text; change no key that"):
        on_other_texts(untrained(CHAINS, texts={"more": ["corpus.states=4"]}))


@pytest.mark.parametrize(("position", "found"), [("rope", ["longer"]), ("learned", [])])
def test_other_texts_may_be_longer_than_the_context_unless_positions_are_learned(untrained, position, found):
    changes = [CHAINS, f"model.position={{type: {position}}}", "model.context_length=9"]
    assert list(on_other_texts(untrained(*changes, texts={"longer": ["corpus.length=12"]}))) == found


def test_the_divergence_from_the_truth_is_that_at_each_place_of_new_documents(untrained):
    run = untrained(CHAINS)
    corpus, tokenizer, expected = run.trained.corpus(), run.trained.tokenizer, []
    for text in corpus.fresh(3, seed=0):
        ids = [tokenizer.end_of_text, *tokenizer.encode(text)]
        log_q_TV = run.trained.model(torch.tensor([ids]))[0].log_softmax(-1).tolist()
        truth = next_token_distributions(corpus.language, tokenizer, text)
        expected += [
            sum(share * (math.log(share) - log_q_V[id_]) for id_, share in p.items())
            for p, log_q_V in zip(truth, log_q_TV, strict=True)
        ]
    assert divergence_from_truth(run, 3) == pytest.approx(sum(expected) / len(expected), rel=1e-4)
