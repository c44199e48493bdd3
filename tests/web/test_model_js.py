"""The decoder and the tokenizer in JavaScript compute in a real browser what PyTorch and `tokenizers` compute."""

import base64
import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.model_axes import MIXED, VOCAB_SIZE, build_away_from_zero, covering_combinations, tiny_config
from pellucid.inspection.trace import trace
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from pellucid.web.tensors import packed

CONFIGS = list(covering_combinations(attention=["explicit", MIXED], attention_soft_cap=[None, 0.5]))
CONFIGS.append(tiny_config(attention=MIXED, position={"type": "rope", "base_in_windows": 9.0}))
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
SOFTMAX = {"position": {"type": "rope", "unrotated_last_layers": 1}, "qk_norm": True, "activation": "relu_squared"}
HELPERS = """
    const { Decoder, trace, lens, nothing } = await import("/static/model.js");
    const { Tokenizer } = await import("/static/tokenizer.js");
    const lists = (x) => ArrayBuffer.isView(x) ? Array.from(x) : x.map(lists);
"""


def in_browser(page, code, argument):
    """What JavaScript returns. The argument travels as text: the bridge to the browser is slow with long lists."""
    body = f"async (text) => {{ {HELPERS} const given = JSON.parse(text); {code} }}"
    return page.evaluate(body, json.dumps(argument))


def rounded(config, vocab_size=VOCAB_SIZE):
    """A model whose weights are what float16 keeps of them, and the same as the browser reads it."""
    model = build_away_from_zero(config, vocab_size).eval()
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    weights = {name: packed(parameter, "float16") for name, parameter in model.named_parameters()}
    return model, {"config": config.model_dump(mode="json"), "weights": weights}


@pytest.fixture(scope="module")
def models():
    return [rounded(config) for config in CONFIGS]


def close(actual, expected):
    np.testing.assert_allclose(np.array(actual, dtype=np.float64), expected.numpy(), atol=1e-4)


def test_what_the_model_computes_in_a_browser_is_what_it_computes_in_pytorch(modules, models):
    answers = in_browser(
        modules,
        """return given.map(({ model, ids }) => {
            const decoder = new Decoder(model.config, model.weights);
            const { points, attention, residuals } = trace(decoder, ids);
            const logits = residuals.map((x_TD) => lens(decoder, x_TD));
            return { points, attention: lists(attention), residuals: lists(residuals), logits: lists(logits) };
        })""",
        [{"model": browser_model, "ids": IDS} for _, browser_model in models],
    )
    for (model, _), answer in zip(models, answers, strict=True):
        traced = trace(model, IDS)
        assert answer["points"] == traced.points
        close(answer["attention"], traced.attention)
        close(answer["residuals"], traced.residuals)
        close(answer["logits"], traced.logits)


def test_one_token_at_a_time_gives_the_logits_of_the_whole_text_at_once(modules, models):
    answers = in_browser(
        modules,
        """return given.map(({ model, ids }) => {
            const decoder = new Decoder(model.config, model.weights);
            const state = decoder.newState();
            return {
                whole: lists(decoder.forward(ids)),
                pieces: lists(ids.flatMap((id) => decoder.forward([id], state))),
                length: state[0].length,
            };
        })""",
        [{"model": browser_model, "ids": IDS} for _, browser_model in models],
    )
    for answer in answers:
        assert answer["length"] == len(IDS)
        np.testing.assert_allclose(answer["pieces"], answer["whole"], atol=1e-6)


def test_a_trace_that_goes_on_from_an_earlier_one_is_the_same_as_one_from_nothing(modules, models):
    typed = [[3, 1, 4], [3, 1, 4, 1, 5], [3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 7, 5], [3, 1], [3, 1], [5, 1, 4]]
    answers = in_browser(
        modules,
        """const same = (a, b) => String(lists(a)) === String(lists(b));
        return given.models.flatMap(({ config, weights }) => {
            const decoder = new Decoder(config, weights);
            return given.placesOff.map((places) => {
                let before = null;
                return given.typed.map((ids) => {
                    const off = places.map((place) => [place, nothing(decoder, place, ids.length)]);
                    before = trace(decoder, ids, off, before);
                    const { seen, residuals } = trace(decoder, ids, off);
                    const differ = Object.keys(seen).filter((name) => !same(before.seen[name], seen[name]));
                    return [before.nKept, differ, same(before.residuals, residuals)];
                });
            });
        })""",
        {
            "models": [browser_model for _, browser_model in models],
            "placesOff": [[], [["head", 0, 1], ["attention", 1]], [["feed_forward", 0]]],
            "typed": typed,
        },
    )
    assert answers == [[[n, [], True] for n in (0, 3, 5, 3, 1, 1, 0)]] * 3 * len(models)


def test_more_tokens_than_the_context_are_refused_in_words(modules):
    code = """const decoder = new Decoder(given.config, given.weights);
        try { decoder.forward(Array(9).fill(0)); } catch (error) { return error.message; }"""
    words = in_browser(modules, code, rounded(tiny_config())[1])
    assert words == "9 tokens are more than the 8 that the model reads at once"


@pytest.mark.parametrize("norm_placement", ["pre", "post", "output", "both"])
def test_a_knocked_out_part_adds_what_it_adds_when_its_output_weights_are_zero(modules, norm_placement):
    model, browser_model = rounded(tiny_config(norm_placement=norm_placement, **SOFTMAX))
    code = """const decoder = new Decoder(given.model.config, given.model.weights);
        return given.places.map((place) => {
            const { residuals } = trace(decoder, given.ids, [[place, nothing(decoder, place, given.ids.length)]]);
            return lists(lens(decoder, residuals.at(-1)));
        })"""
    places = [["head", 0, 1], ["head", 1, 0], ["attention", 0], ["feed_forward", 1]]
    answers = in_browser(modules, code, {"model": browser_model, "places": places, "ids": IDS})
    for (kind, layer, *head), logits in zip(places, answers, strict=True):
        model, _ = rounded(tiny_config(norm_placement=norm_placement, **SOFTMAX))
        sublayer = getattr(model.blocks[layer], "feed_forward" if kind == "feed_forward" else "attention").sublayer
        weight = sublayer.W_2.weight if kind == "feed_forward" else sublayer.W_O.weight
        with torch.no_grad():
            weight[:, slice(4 * head[0], 4 * head[0] + 4) if head else slice(None)] = 0
        close(logits, model(torch.tensor([IDS]))[0].detach())


def test_every_float16_is_read_as_the_number_that_it_is(modules):
    bits = np.arange(2**16, dtype=np.uint16)
    code = """const { unpacked } = await import("/static/tensor.js");
        return Array.from(unpacked(given).values, (x) => Number.isNaN(x) ? "nan" : `${x}`).join(" ")"""
    tensor = {"shape": [2**16], "dtype": "float16", "data": base64.b64encode(bits.tobytes()).decode()}
    numbers = np.array(in_browser(modules, code, tensor).split(), dtype=np.float64)
    np.testing.assert_array_equal(numbers, bits.view(np.float16).astype(np.float64))


CORPUS = "The fox said: I can't. We'll see 12 hens!\n\n  猫é " * 3 + "aab aab ab"
BYTE_PAIRS = train_byte_pairs([CORPUS], vocab_size=300, special_tokens=["<|endoftext|>", "<|pad|>"])
CHARACTERS = train_characters([CORPUS], special_tokens=["<|endoftext|>"])
KNOWN_TO_ALL = st.characters(max_codepoint=0x9FFF, exclude_categories=["Cs", "Cn"])  # versions of Unicode differ
BLANKS = " \n\t\r\x0b\x1c\x1f\x85\xa0\u2003\u2028\u3000\ufeff"
MARKS = st.sampled_from([*BLANKS, *"a'st,.!1²é猫😀", "'ll", "<|endoftext|>", "The"])
TEXTS = st.lists(KNOWN_TO_ALL | MARKS, max_size=30).map("".join)


@given(st.lists(TEXTS, min_size=150, max_size=150))
@settings(max_examples=3, suppress_health_check=list(HealthCheck), deadline=None)
def test_a_text_has_the_same_tokens_in_a_browser_and_comes_back_from_them(modules, texts):
    code = """const tokenizer = new Tokenizer(given.description);
        return given.texts.map((text) => [tokenizer.encode(text), tokenizer.decode(tokenizer.encode(text))]);"""
    answers = in_browser(modules, code, {"description": json.loads(BYTE_PAIRS.to_json()), "texts": texts})
    assert answers == [[BYTE_PAIRS.encode(text), text] for text in texts]


def test_bytes_that_are_no_whole_character_are_decoded_alike(modules):
    all_ids = [[id_] for id_ in range(BYTE_PAIRS.vocab_size)] + [BYTE_PAIRS.encode("猫")[:2] + BYTE_PAIRS.encode("a")]
    code = "const tokenizer = new Tokenizer(given.description); return given.ids.map((ids) => tokenizer.decode(ids));"
    answers = in_browser(modules, code, {"description": json.loads(BYTE_PAIRS.to_json()), "ids": all_ids})
    assert answers == [BYTE_PAIRS.decode(ids) for ids in all_ids]


def test_a_character_vocabulary_has_a_token_for_each_character_and_refuses_others(modules):
    code = """const tokenizer = new Tokenizer(given);
        try { tokenizer.encode("fox ж"); } catch (error) { return [tokenizer.encode("The 猫"), error.message]; }"""
    answer = in_browser(modules, code, json.loads(CHARACTERS.to_json()))
    assert answer == [CHARACTERS.encode("The 猫"), "the character ж is not in the vocabulary of this run"]
