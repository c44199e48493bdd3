from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pellucid.corpora.corpus import Turn
from pellucid.errors import ConfigError, DataError
from pellucid.generation import text as text_module
from pellucid.generation.chat import Conversation
from pellucid.generation.engine import Engine
from pellucid.generation.sampling import Sampling
from pellucid.generation.slots import make_slots
from pellucid.generation.text import never_written
from pellucid.generation.writing import Writing
from pellucid.model.decoder import Decoder
from pellucid.runtime.precision import Precision
from pellucid.tokenizer.chat import prompt_ids
from pellucid.tokenizer.tokenizer import END_OF_TURN
from pellucid.tokenizer.train import train_byte_pairs, train_characters

MakeDecoder = Callable[..., Decoder]

PLAIN = train_byte_pairs(["the fox saw the crow. ça va? " * 9], vocab_size=280, special_tokens=["<|endoftext|>"])
TOKENIZER = PLAIN.with_chat_tokens()
END = TOKENIZER.control_id(END_OF_TURN)
CPU = Precision(torch.device("cpu"), torch.float32)


@pytest.fixture
def model(make_decoder: MakeDecoder) -> Decoder:
    return make_decoder(vocab_size=TOKENIZER.vocab_size, context_length=40)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The prompts that the model is given. It answers each with "the crow"."""
    prompts: list[list[int]] = []

    def crow(model: Decoder, writings: list[Writing], **options: Any) -> Iterator[None]:
        [writing] = writings
        prompts.append(list(writing.prompt_ids))
        for id_ in [*TOKENIZER.encode("the crow"), END]:
            if not writing.has_ended:
                writing.add(id_, id_ == END, None)
                yield

    monkeypatch.setattr(text_module, "in_step", crow)
    return prompts


def conversation_with(model: Decoder, **options: Any) -> Conversation:
    return Conversation(model, TOKENIZER, CPU, **{"sampling": Sampling(2.0), "max_new_tokens": 8, "seed": 0, **options})


def test_each_answer_reads_all_that_was_said_before_in_the_template(model: Decoder, read: list[list[int]]):
    conversation = conversation_with(model)
    assert "".join(conversation.say("fox?")) == conversation.ask("crow?") == "the crow"
    turns = [Turn("user", "fox?"), Turn("assistant", "the crow"), Turn("user", "crow?"), Turn("assistant", "the crow")]
    assert conversation.turns == turns
    assert read == [prompt_ids(TOKENIZER, turns[:1]), prompt_ids(TOKENIZER, turns[:3])]
    conversation.start_over()
    conversation.ask("crow?")
    assert read[-1] == prompt_ids(TOKENIZER, [Turn("user", "crow?")])


def test_the_oldest_turns_go_first_and_whole_when_the_answer_would_not_fit(
    model: Decoder, read: list[list[int]], caplog
):
    conversation = conversation_with(model)
    for i in range(9):
        conversation.ask(f"fox {i}?")
        latest = [
            turns
            for n in range(0, len(conversation.turns), 2)
            if len(turns := prompt_ids(TOKENIZER, conversation.turns[n:-1])) + 8 <= 40 + 1
        ]
        assert read[-1] == latest[0]
    assert len(read[-1]) < len(prompt_ids(TOKENIZER, conversation.turns[:-1]))
    assert [record.message for record in caplog.records] == [
        "the conversation is longer than the context: its oldest turns are no longer read"
    ]
    assert len(conversation.turns) == 18


def test_a_question_that_fills_the_context_gets_the_tokens_that_are_left_or_is_refused(model: Decoder, read):
    conversation = conversation_with(model, max_new_tokens=30)
    room = 40 + 1 - len(prompt_ids(TOKENIZER, [Turn("user", "")]))  # the last token that is written is not read
    assert len(TOKENIZER.encode("~" * room)) == room
    for n_left in (2, 1):
        conversation.start_over()
        conversation.ask("~" * (room - n_left))
        assert (conversation.n_tokens, conversation.finish_reason) == (n_left, "length")
    said = conversation.turns
    with pytest.raises(ConfigError, match=r"^chat: this turn and its marks are 41 tokens, and the context holds 40; "):
        conversation.ask("~" * room)
    assert conversation.turns is said


def test_an_answer_ends_with_its_turn_or_at_the_limit(model: Decoder, read: list[list[int]]):
    ended, cut = conversation_with(model), conversation_with(model, max_new_tokens=1)
    ended.ask("fox?")
    cut.ask("fox?")
    assert (ended.finish_reason, ended.n_tokens) == ("end_of_text", len(TOKENIZER.encode("the crow")))
    assert (cut.finish_reason, cut.n_tokens) == ("length", 1)


def test_an_answer_that_nobody_heard_to_its_end_was_not_said(model: Decoder, read: list[list[int]]):
    conversation = conversation_with(model)
    next(conversation.say("fox?"))
    assert conversation.turns == []


def test_a_seed_gives_the_same_conversation_and_each_answer_other_random_numbers(model: Decoder):
    def answers(seed: int) -> list[str]:
        conversation = conversation_with(model, seed=seed, sampling=Sampling(5.0))
        return [conversation.ask("fox?"), conversation.ask("crow?")]

    assert answers(3) == answers(3) != answers(4)
    with torch.no_grad():  # all tokens alike, whatever was said
        model.embeddings.unembedding_VD.zero_()
    first, second = answers(3)
    assert first != second


def test_the_first_answer_is_the_text_that_the_server_gives(model: Decoder):
    conversation = conversation_with(model, seed=3, max_new_tokens=20)
    wanted = Writing(prompt_ids(TOKENIZER, [Turn("user", "fox?")]), 20, Sampling(2.0), seed=(3, 0))
    settings = {"stop_ids": TOKENIZER.stop_ids, "forbidden_ids": never_written(TOKENIZER)}
    engine = Engine(model, make_slots(model.eval(), 4), **settings)
    engine.add(wanted)
    while not engine.is_idle:
        engine.step()
    assert conversation.ask("fox?") == TOKENIZER.decode([id_ for id_ in wanted.token_ids if id_ != END])


def test_three_quarters_of_the_context_are_for_the_answer_unless_said_otherwise(model: Decoder):
    with torch.no_grad():  # all tokens alike, and the first is the likeliest of them
        model.embeddings.unembedding_VD.zero_()
    conversation = conversation_with(model, max_new_tokens=None, sampling=Sampling(0))
    assert 0 not in TOKENIZER.control_ids
    conversation.ask("fox?")
    assert (conversation.n_tokens, conversation.finish_reason) == (30, "length")


def test_what_cannot_be_said_is_one_clear_line(model: Decoder, make_decoder: MakeDecoder):
    with pytest.raises(ConfigError, match="not trained on conversations"):
        Conversation(model, PLAIN, CPU, sampling=Sampling())
    with pytest.raises(ConfigError, match="^max_new_tokens: 0 leaves no room"):
        conversation_with(model, max_new_tokens=0)
    with pytest.raises(ConfigError, match=r"^seed: -1 is not in"):
        conversation_with(model, seed=-1).ask("fox?")
    characters = train_characters(["the fox"], special_tokens=["<|endoftext|>"]).with_chat_tokens()
    with pytest.raises(DataError, match="'z' .* is not in the vocabulary"):
        Conversation(model, characters, CPU, sampling=Sampling()).ask("z")
