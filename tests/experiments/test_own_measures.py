"""The code of shipped experiments measures what its docstrings say."""

import pytest
import torch

from experiments.conftest import own_code
from pellucid.corpora.build import build_corpus
from pellucid.generation.sampling import Sampling
from pellucid.model.build import build_model
from pellucid.recipe import build_batches, evaluate


@pytest.mark.parametrize(("position", "lengths"), [("sinusoidal", (16, 64, 200)), ("learned", (16, 64))])
def test_positions_that_are_computed_reach_as_far_as_one_likes_and_learned_ones_as_trained(
    untrained, position, lengths, monkeypatch
):
    positions = own_code("positions")
    monkeypatch.setattr(positions, "LENGTHS", (16, 64, 200))
    run = untrained(f"model.position={{type: {position}}}")
    found = positions.measure(run)
    assert list(found) == [f"contexts.{length}" for length in lengths]
    assert len(set(found.values())) == len(lengths)
    trained_length = evaluate(run.config, run.data, run.trained.model, run.precision)
    assert found["contexts.64"] == trained_length.excess_nats_per_token


def test_a_kind_of_bracket_is_right_if_it_is_the_likeliest_of_those_that_close(untrained):
    brackets = "corpus={type: brackets, kinds: 3, depth: 3, length: 16, size: 400, validation_fraction: 0.1}"
    run = untrained(brackets, texts={"own": []})
    found = own_code("brackets").measure(run)
    tokenizer, model = run.trained.tokenizer, run.trained.model
    language = build_corpus(run.config.corpus).language
    closing = [symbol for _, symbol in language.kinds]
    closing_ids = [tokenizer.encode(f" {symbol}")[0] for symbol in closing]
    right = {f"close {depth}": [] for depth in (1, 2, 3)}
    for text in build_corpus(run.config.corpus).documents("validation"):
        ids = [tokenizer.end_of_text, *tokenizer.encode(text)]
        logits_TV = model(torch.tensor([ids]))[0]
        for (state, symbol), logits_V in zip(language.steps(text), logits_TV, strict=True):
            if symbol in closing:
                likeliest = closing[int(logits_V[closing_ids].argmax())]
                right[language.skill(state, symbol)].append(likeliest == symbol)
    right["close"] = [each for of_skill in right.values() for each in of_skill]
    assert found == pytest.approx({f"kind.{skill}@own": sum(each) / len(each) for skill, each in right.items()})
    assert len({found[f"kind.close {depth}@own"] for depth in (1, 2, 3)}) == 3


def test_the_losses_of_all_places_are_those_of_the_documents(untrained):
    run = untrained("corpus={type: chains, length: 8, size: 400, validation_fraction: 0.1}")
    corpus, tokenizer = run.trained.corpus(), run.trained.tokenizer
    texts = list(corpus.documents("validation"))
    found = own_code("in_context").measure(run)["places"]
    assert sum(found["truth"]) == pytest.approx(-sum(map(corpus.language.log_probability, texts)) / len(texts))
    symbols = list(zip(*(corpus.language.nats_by_strategy(text, "counts") for text in texts), strict=True))
    assert found["by counts of symbols"] == pytest.approx([sum(place) / len(texts) for place in symbols])
    tokens = torch.tensor([[tokenizer.end_of_text, *tokenizer.encode(text)] for text in texts])
    logits = run.trained.model(tokens[:, :-1])
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
    assert found["model"] == pytest.approx(nats.mean(dim=0).tolist(), rel=1e-4)


def test_the_first_gradient_is_that_of_the_mean_loss_at_the_seeds_first_weights(untrained):
    run = untrained("model.n_layers=3", "seed=5")
    torch.manual_seed(5)
    decoder = build_model(run.config.model, run.data.tokenizer.vocab_size)
    inputs_BT, targets_BT = build_batches(run.config, run.data).batch(0)
    torch.nn.functional.cross_entropy(decoder(inputs_BT).flatten(0, 1), targets_BT.flatten()).backward()
    expected = [sum(float(p.grad.square().sum()) for p in block.parameters()) ** 0.5 for block in decoder.blocks]
    assert own_code("norms").measure(run)["gradient_norms"] == pytest.approx(expected, rel=1e-4)
    assert len(expected) == 3


def test_each_way_to_write_goes_on_from_the_same_beginnings_and_is_judged_beside_true_fables(untrained, monkeypatch):
    decoding, run = own_code("decoding"), untrained()
    ways = {"drawn": Sampling(top_p=0.9), "greedy": Sampling(temperature=0), "found": 2}
    for name, value in {"WAYS": ways, "BEGINNINGS": 3, "SAMPLES": 2}.items():
        monkeypatch.setattr(decoding, name, value)
    found = decoding.measure(run)
    assert {column.partition(".")[2] for column in found} == {*ways, "true fables"}
    assert (found["whole.greedy"], found["morals.greedy"], found["surprise.greedy"]) == (0.0, 0, None)
    assert found["whole.true fables"] == 1
    assert found["surprise.true fables"] > 0
    assert decoding.measure(run) == found
    drawn, greedy, searched = (decoding.write(run.trained, way, 0, "There was a wolf.") for way in ways.values())
    assert [len(drawn), len(greedy), len(searched)] == [2, 1, 1]
    assert drawn[0] != drawn[1]
    assert all(text.startswith("There was a wolf.") for text in (*drawn, *greedy, *searched))
