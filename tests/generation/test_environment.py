"""A tool answers whoever asks it, whatever the model thinks; all else is the model's own."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.config.languages import SumsConfig
from pellucid.errors import ConfigError
from pellucid.generation.answers import write_answers
from pellucid.generation.engine import Engine
from pellucid.generation.environment import tool_of
from pellucid.generation.sampling import Sampling
from pellucid.generation.slots import make_slots
from pellucid.generation.text import search_text
from pellucid.generation.writing import Writing
from pellucid.languages.sums import Sums
from pellucid.tokenizer.train import train_byte_pairs, train_characters

SYMBOLS = "0123456789+=:?"
TEXT = "".join(f" {symbol}" for symbol in SYMBOLS)
TOKENIZERS = {
    "characters": train_characters([TEXT], special_tokens=["<|end|>"]),
    "byte pairs": train_byte_pairs([TEXT] * 2, vocab_size=300, special_tokens=["<|end|>"]),
}
CONFIG = SumsConfig(type="sums", digits=2, thoughts="tool")
ASKED = re.compile(r"(?= (\d) (\d) \?( \d)?( \d)?)")


def tool_writer(make_decoder, tokenizer):
    model = make_decoder(vocab_size=tokenizer.vocab_size, context_length=64).eval()
    model.environment = tool_of(CONFIG, tokenizer)
    return model


@given(st.lists(st.sampled_from([*SYMBOLS, "", "12", "é"]), max_size=8))
def test_the_tool_adds_the_two_digits_before_the_mark_whatever_came_before(symbols):
    call = re.search(r"(?:^| )(\d) (\d) \?( \d)?$", " ".join(symbols))
    expected = f"{int(call[1]) + int(call[2]):02}"[bool(call[3])] if call else ""
    assert Sums(2, "forwards", None, "tool").environment(symbols) == expected
    assert Sums(2, "forwards", None, "way").environment(symbols) == ""


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
def test_an_untrained_model_always_has_the_right_sums_of_two_digits_once_it_asks(make_decoder, tokenizer):
    """Some prompts end in a question to the tool, or within its answer. What nobody asked for is not answered."""
    model, n_answered = tool_writer(make_decoder, tokenizer), 0
    prompts = [" 3 7 + 5 8 : 7 8", " 3 7 + 5 8 : 7 8 ?", " 3 7 + 5 8 : 7 8 ? 1", " 3 + 5 8 : + 8 ?"]
    ids = [[tokenizer.end_of_text, *tokenizer.encode(prompt)] for prompt in prompts] * 20
    written = write_answers(
        model,
        ids,
        [(0, i) for i in range(len(ids))],
        max_new_tokens=30,
        stop_ids=tokenizer.control_ids,
        temperature=0.7,
    )
    for prompt, each in zip(prompts * 20, written, strict=True):
        ended = each.finish_reason == "end_of_text"
        text = prompt + tokenizer.decode(each.token_ids[: len(each.token_ids) - ended])
        for first, second, *answer in ASKED.findall(text):
            if all(answer):
                assert "".join(answer).split() == list(f"{int(first) + int(second):02}"), text
                n_answered += 1
        if prompt.endswith("+ 8 ?"):
            assert each.is_own[0]
        elif "?" in prompt:
            assert not each.is_own[0]
    assert n_answered >= 40


@pytest.mark.parametrize("in_slots", [False, True])
def test_what_is_not_the_tools_is_drawn_from_the_model_itself(make_decoder, write_in_step, in_slots):
    """ln p of each own token is that of the model which reads the same text; a tool's token was certain."""
    tokenizer = TOKENIZERS["byte pairs"]
    model = tool_writer(make_decoder, tokenizer)
    prompt = [tokenizer.end_of_text, *tokenizer.encode(" 3 7 + 5 8 : 7 8 ?")]
    writings = [Writing(prompt, 12, Sampling(), (0, i), keeps_log_p=True) for i in range(6)]
    if in_slots:
        engine = Engine(model, make_slots(model, 4), stop_ids=[])
        for writing in writings:
            engine.add(writing)
        while not engine.is_idle:
            engine.step()
    else:
        write_in_step(model, writings)
    for writing in writings:
        ids = torch.tensor([[*prompt, *writing.token_ids]])
        with torch.inference_mode():
            log_p = model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])[0, len(prompt) - 1 :, 0]
        is_own = torch.tensor(writing.is_own)
        assert writing.is_own[:2] == [False, False]
        torch.testing.assert_close(torch.tensor(writing.log_p), log_p * is_own, atol=1e-4, rtol=0)


def test_beams_are_refused_where_a_tool_answers(make_decoder):
    tokenizer = TOKENIZERS["byte pairs"]
    with pytest.raises(ConfigError, match="beams: a search does not wait for the tool"):
        search_text(tool_writer(make_decoder, tokenizer), tokenizer, "", n_beams=2, max_new_tokens=2)
