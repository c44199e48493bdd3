"""What is measured besides the loss: at other context lengths, and of the first gradient."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pellucid.config.experiment import WritingConfig
from pellucid.config.load import load_run_config
from pellucid.corpora.build import build_corpus
from pellucid.data.prepared import PreparedData
from pellucid.errors import ConfigError
from pellucid.experiments.measures import (
    at_context_lengths,
    at_each_place,
    first_gradient_norms,
    on_other_texts,
    ways_to_write,
    with_context_length,
    write,
)
from pellucid.model.build import build_model
from pellucid.recipe import build_batches, evaluate, prepare_data
from pellucid.runtime.precision import Precision
from pellucid.trained import TrainedModel

CPU = Precision(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def untrained(place: Path, data_root: Path) -> Callable[..., tuple[TrainedModel, PreparedData]]:
    """A model as it begins, and its data, which all tests share."""

    def built(*overrides: str) -> tuple[TrainedModel, PreparedData]:
        config = load_run_config(Path("base.yaml"), overrides)
        data = prepare_data(config, data_root)
        torch.manual_seed(0)
        decoder = build_model(config.model, data.tokenizer.vocab_size).eval()
        return TrainedModel(config, data.tokenizer, decoder, 0, data.fingerprint), data

    return built


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "none", "learned"])
def test_at_the_trained_length_the_excess_is_that_of_the_evaluation(untrained, position):
    model, data = untrained(f"model.position={{type: {position}}}")
    excess = evaluate(model.config, data, model.model, CPU).excess_nats_per_token
    assert at_context_lengths(model, data, CPU, (64,)) == [(64, excess)]


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "none"])
def test_positions_that_are_computed_reach_as_far_as_one_likes(untrained, position):
    model, data = untrained(f"model.position={{type: {position}}}")
    found = dict(at_context_lengths(model, data, CPU, (16, 64, 200)))
    assert set(found) == {16, 64, 200}
    assert len(set(found.values())) == 3


def test_learned_positions_end_where_they_were_trained(untrained):
    model, data = untrained("model.position={type: learned}")
    assert [length for length, _ in at_context_lengths(model, data, CPU, (16, 64, 65))] == [16, 64]


@pytest.mark.parametrize("position", ["rope", "sinusoidal", "none", "learned"])
def test_another_context_length_changes_no_logit_within_it(untrained, position):
    model, _ = untrained(f"model.position={{type: {position}}}")
    tokens_BT = torch.randint(0, 300, (2, 16))
    assert torch.equal(with_context_length(model, 16)(tokens_BT), model.model(tokens_BT))


def test_without_a_known_truth_the_loss_is_measured(untrained):
    model, data = untrained("corpus={type: text, files: [corpus.txt]}")
    loss = evaluate(model.config, data, model.model, CPU).loss_nats_per_token
    assert at_context_lengths(model, data, CPU, (64,)) == [(64, loss)]


CHAINS = "corpus={type: chains, length: 8, size: 400, validation_fraction: 0.1}"


def test_on_its_own_text_a_model_has_the_skills_of_its_evaluation(untrained):
    model, data = untrained(CHAINS)
    skills = evaluate(model.config, data, model.model, CPU).skills.to_json()
    assert on_other_texts(model, data, CPU, {"own": model.config}) == {"own": skills}


def test_a_kind_of_bracket_is_right_if_it_is_the_likeliest_of_those_that_close(untrained):
    brackets = "corpus={type: brackets, kinds: 3, depth: 3, length: 16, size: 400, validation_fraction: 0.1}"
    model, data = untrained(brackets)
    found = on_other_texts(model, data, CPU, {"own": model.config})["own"]
    language = build_corpus(model.config.corpus).language
    closing = [symbol for _, symbol in language.kinds]
    closing_ids = [model.tokenizer.encode(f" {symbol}")[0] for symbol in closing]
    right = {f"close {depth}": [] for depth in (1, 2, 3)}
    for text in build_corpus(model.config.corpus).documents("validation"):
        ids = [model.tokenizer.end_of_text, *model.tokenizer.encode(text)]
        logits_TV = model.model(torch.tensor([ids]))[0]
        for (state, symbol), logits_V in zip(language.steps(text), logits_TV, strict=True):
            if symbol in closing:
                likeliest = closing[int(logits_V[closing_ids].argmax())]
                right[language.skill(state, symbol)].append(likeliest == symbol)
    assert {skill: figures["kind"] for skill, figures in found.items() if "kind" in figures} == pytest.approx(
        {skill: sum(each) / len(each) for skill, each in right.items()}
    )
    assert len({figures["kind"] for figures in found.values() if "kind" in figures}) == 3


def test_other_texts_have_no_symbols_that_were_never_trained_on(untrained):
    model, data = untrained(CHAINS)
    more = load_run_config(Path("base.yaml"), [CHAINS, "corpus.states=4"])
    with pytest.raises(ConfigError, match="measures.texts.more: .* are not in the training text; change no key that"):
        on_other_texts(model, data, CPU, {"more": more})


def test_strategies_stand_beside_tokens_only_where_each_symbol_is_one(untrained):
    model, data = untrained(CHAINS, "tokenizer={type: char}")
    assert list(at_each_place(model, data, CPU)) == ["model", "truth"]


def test_other_texts_may_be_longer_than_the_context_unless_positions_are_learned(untrained):
    for kind, found in (("rope", ["longer"]), ("learned", [])):
        changes = [CHAINS, f"model.position={{type: {kind}}}", "model.context_length=9"]
        model, data = untrained(*changes)
        longer = load_run_config(Path("base.yaml"), [*changes, "corpus.length=12"])
        assert list(on_other_texts(model, data, CPU, {"longer": longer})) == found


def test_the_losses_of_all_places_are_those_of_the_documents(untrained):
    model, data = untrained(CHAINS)
    corpus = build_corpus(model.config.corpus)
    texts = list(corpus.documents("validation"))
    found = at_each_place(model, data, CPU)
    assert sum(found["truth"]) == pytest.approx(-sum(map(corpus.language.log_probability, texts)) / len(texts))
    symbols = list(zip(*(corpus.language.nats_by_strategy(text, "counts") for text in texts), strict=True))
    assert found["by counts of symbols"] == pytest.approx([sum(place) / len(texts) for place in symbols])
    tokens = [[model.tokenizer.end_of_text, *model.tokenizer.encode(text)] for text in texts]
    logits = model.model(torch.tensor(tokens)[:, :-1])
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), torch.tensor(tokens)[:, 1:], reduction="none")
    assert found["model"] == pytest.approx(nats.mean(dim=0).tolist(), rel=1e-4)


def test_the_first_gradient_is_that_of_the_mean_loss_at_the_seeds_first_weights(untrained):
    _, data = untrained()
    config = load_run_config(Path("base.yaml"), ["model.n_layers=3", "seed=5"])
    torch.manual_seed(5)
    decoder = build_model(config.model, data.tokenizer.vocab_size)
    inputs_BT, targets_BT = build_batches(config, data).batch(0)
    torch.nn.functional.cross_entropy(decoder(inputs_BT).flatten(0, 1), targets_BT.flatten()).backward()
    expected = [sum(float(p.grad.square().sum()) for p in block.parameters()) ** 0.5 for block in decoder.blocks]
    assert first_gradient_norms(config, data) == pytest.approx(expected, rel=1e-4)
    assert len(expected) == 3


WRITING = WritingConfig.model_validate(
    {
        "beginnings": 3,
        "samples": 2,
        "ways": [
            {"label": "drawn", "top_p": 0.9},
            {"label": "greedy", "temperature": 0.0},
            {"label": "found", "beams": 2, "length_penalty": 0.6},
        ],
    }
)


def test_each_way_to_write_and_the_true_fables_are_judged(untrained):
    model, _ = untrained()
    found = ways_to_write(model, CPU, WRITING)
    assert list(found) == ["drawn", "greedy", "found", "true fables"]
    assert found["greedy"] == {"whole": 0.0, "morals": 0, "distance": 1.0, "surprise": None}
    assert found["true fables"]["whole"] == 1
    assert found["true fables"]["surprise"] > 0
    assert ways_to_write(model, CPU, WRITING) == found


def test_texts_go_on_from_a_beginning_each_sample_in_its_own_way_and_a_search_in_one(untrained):
    model, _ = untrained()
    drawn, greedy, searched = (write(model, way, 2, 0, "There was once a wolf.") for way in WRITING.ways)
    assert [len(drawn), len(greedy), len(searched)] == [2, 1, 1]
    assert drawn[0] != drawn[1]
    assert all(text.startswith("There was once a wolf.") for text in (*drawn, *greedy, *searched))


def test_ways_to_write_need_a_grammar(untrained):
    model, _ = untrained("corpus={type: text, files: [corpus.txt]}")
    with pytest.raises(ConfigError, match="measures.writing is for fables only"):
        ways_to_write(model, CPU, WRITING)
