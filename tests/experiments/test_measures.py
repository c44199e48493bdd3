"""Measures of many experiments besides the loss: skills on other texts, and other context lengths."""

import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.experiments.measures import on_other_texts, with_context_length
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
