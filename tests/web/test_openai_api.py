"""The official client against the server: what it sends is understood, and what it gets is what `generate` writes."""

import asyncio
import gc
import json
import math
import shutil
import sys
import threading
import traceback
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import httpx
import openai
import pytest
import torch

import pellucid
from pellucid.checkpoint.snapshots import write_snapshot
from pellucid.checkpoint.step_directory import read_checkpoint, write_checkpoint
from pellucid.errors import CheckpointError, ConfigError
from pellucid.generation.engine import Engine
from pellucid.generation.sampling import Sampling
from pellucid.generation.stream import TextStream, first_stop
from pellucid.generation.writing import Writing
from pellucid.tokenizer.chat import prompt_ids
from pellucid.tokenizer.tokenizer import CHAT_TOKENS
from pellucid.tokenizer.train import train_characters
from pellucid.web.errors import ApiError
from pellucid.web.openai import engine_thread
from pellucid.web.openai import served as served_module
from pellucid.web.openai.engine_thread import EngineThread, Job
from pellucid.web.openai.prompts import read_prompts
from pellucid.web.openai.schemas import ChatRequest, CompletionRequest
from pellucid.web.openai.served import ServedRun
from serving import GIVES_UP_AFTER_SECONDS, app_of, served
from tiny_run import TINY_RUN, VERSES

GREEDY = {"temperature": 0}
QUESTION = {"role": "user", "content": "The fox"}
MINE = {"role": "assistant", "content": "said"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pellucid.Run:
    """A run that knows the marks of a conversation. Its context is 32 tokens."""
    folder = tmp_path_factory.mktemp("api")
    (folder / "corpus.txt").write_text(VERSES)
    marks = json.dumps(["<|endoftext|>", *CHAT_TOKENS])
    config = TINY_RUN.replace("vocab_size: 300", f"vocab_size: 300, special_tokens: {marks}")
    config = config.replace("corpus.txt", (folder / "corpus.txt").as_posix())
    (folder / "tiny.yaml").write_text(config)
    return pellucid.train(folder / "tiny.yaml", folder / "tiny", data_dir=folder / "data", steps=5)


def calling(address: tuple[str, int]) -> openai.OpenAI:
    host, port = address
    return openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="any", max_retries=0)


@pytest.fixture(scope="module")
def client(run: pellucid.Run) -> Iterator[openai.OpenAI]:
    with served(app_of(run.directory.parent)) as address, calling(address) as client:
        yield client


@pytest.fixture
def complete(client: openai.OpenAI) -> Callable[..., openai.types.Completion]:
    return lambda prompt="The fox", **options: client.completions.create(model="tiny", prompt=prompt, **options)


def test_a_completion_with_a_seed_is_what_generate_writes(complete, run):
    for prompt, max_tokens in (("", 1), ("The fox", 12), ("The grey hen said", 60)):
        answer = complete(prompt, max_tokens=max_tokens, seed=5)
        assert answer.choices[0].text == run.generate(prompt, max_new_tokens=max_tokens, seed=5)
        n_prompt = 1 + len(run.tokenizer.encode(prompt))
        assert answer.usage.prompt_tokens == n_prompt
        assert answer.usage.completion_tokens <= max_tokens
        assert answer.usage.total_tokens == n_prompt + answer.usage.completion_tokens
        if answer.choices[0].finish_reason == "length":
            assert answer.usage.completion_tokens == max_tokens


def test_a_stream_is_the_completion_in_pieces(complete):
    options = {"max_tokens": 24, "n": 3, "seed": 4, "stop": ["lost", "z"], "logprobs": 2, "temperature": 1.1}
    whole = complete(**options)
    chunks = list(complete(**options, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1
    for choice in whole.choices:
        pieces = [piece for chunk in chunks for piece in chunk.choices if piece.index == choice.index]
        assert "".join(piece.text for piece in pieces) == choice.text
        assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + [choice.finish_reason]
        for key in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            in_pieces = [entry for piece in pieces for entry in getattr(piece.logprobs, key)]
            assert in_pieces == getattr(choice.logprobs, key)


def test_several_prompts_in_one_request_are_each_as_alone(complete, run):
    texts = ["The fox", "The hen said"]
    together = complete(texts, max_tokens=9, n=2, seed=3)
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    alone = [choice.text for text in texts for choice in complete(text, max_tokens=9, n=2, seed=3).choices]
    assert [choice.text for choice in together.choices] == alone
    assert alone[0] != alone[1], "choices draw their own numbers"
    assert complete(max_tokens=20).choices[0].text != complete(max_tokens=20).choices[0].text
    ids = [[run.tokenizer.end_of_text, *run.tokenizer.encode(text)] for text in texts]
    assert [choice.text for choice in complete(ids, max_tokens=9, n=2, seed=3).choices] == alone
    assert complete(ids[0], max_tokens=9, seed=3).choices[0].text == alone[0]


def test_a_stop_string_ends_the_text_before_it(complete):
    drawn = {"max_tokens": 40, "seed": 5}
    whole = complete(**drawn).choices[0].text
    assert len(whole) > 20
    stop = [whole[10:12], "no such text"]
    answer = complete(stop=stop, **drawn).choices[0]
    assert answer.text == whole[: first_stop(whole, stop)]
    assert answer.finish_reason == "stop"
    assert complete(stop=stop[0], **drawn).choices[0].text == answer.text


def test_logprobs_are_those_of_the_model(complete, run):
    answer = complete(max_tokens=6, logprobs=3, echo=True, seed=1, temperature=0.7, extra_body={"top_k": 8})
    [choice] = answer.choices
    scores = choice.logprobs
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(choice.text)]
    with torch.inference_mode():
        log_p_TV = run.model(torch.tensor([ids]))[0].log_softmax(dim=-1)
    assert choice.text.startswith("The fox")
    if [run.tokenizer.decode([id_]) for id_ in ids[1:]] == scores.tokens[1:]:  # else the text has several spellings
        expected = [log_p_TV[t, id_].item() for t, id_ in enumerate(ids[1:])]
        assert scores.token_logprobs[1:] == pytest.approx(expected, abs=1e-4)
    assert (scores.tokens[0], scores.token_logprobs[0], scores.top_logprobs[0]) == ("<|endoftext|>", None, None)
    for token, log_p, likeliest in list(zip(scores.tokens, scores.token_logprobs, scores.top_logprobs, strict=True))[
        1:
    ]:
        assert likeliest[token] == log_p
        assert 3 <= len(likeliest) <= 4
        assert math.fsum(map(math.exp, likeliest.values())) <= 1 + 1e-6
    for token, offset in list(zip(scores.tokens, scores.text_offset, strict=True))[1:]:
        assert choice.text[offset:].startswith(token)


def test_a_prompt_longer_than_the_context_is_read_from_its_end_and_a_field_says_so(complete, run):
    long = "The fox said: I found the cheese. " * 20
    answer = complete(long, max_tokens=1, **GREEDY)
    n_unread = answer.usage.prompt_tokens - 32
    assert answer.warning == f"the prompt is longer than the context; its first {n_unread} tokens were not read"
    assert answer.choices[0].text == run.generate(long, max_new_tokens=1, temperature=0)
    assert "warning" not in complete("The fox", max_tokens=1).model_extra
    scored = complete(long, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert scored.text == long
    assert scored.logprobs.token_logprobs[:n_unread] == [None] * n_unread


def test_a_conversation_is_put_into_the_chat_template(client, run):
    turns = [("user", "The fox"), ("assistant", "said"), ("user", "The hen")]
    messages = [{"role": role, "content": text} for role, text in turns]
    options = {"max_tokens": 10, "seed": 2}
    answer = client.chat.completions.create(model="tiny", messages=messages, logprobs=True, top_logprobs=2, **options)
    ids = prompt_ids(run.tokenizer, turns)
    same = client.completions.create(model="tiny", prompt=ids, **options)
    assert answer.choices[0].message.content == same.choices[0].text
    assert answer.usage == same.usage
    scored = answer.choices[0].logprobs.content
    assert (
        b"".join(map(bytes, (token.bytes for token in scored)))
        .decode("utf-8", "replace")
        .startswith(answer.choices[0].message.content)
    )
    assert all(len(token.top_logprobs) == 2 for token in scored)
    stream = client.chat.completions.create(model="tiny", messages=messages, stream=True, **options)
    deltas = [chunk.choices[0].delta for chunk in stream]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == answer.choices[0].message.content


def test_a_system_message_begins_the_first_turn_and_the_oldest_turns_are_left_out(client, run):
    def ask(*turns: tuple[str, str], **options: object) -> openai.types.chat.ChatCompletion:
        messages = [{"role": role, "content": text} for role, text in turns]
        return client.chat.completions.create(model="tiny", messages=messages, seed=1, **options)

    joined = ask(("user", "Be\n\nThe"), max_tokens=5).choices[0].message.content
    assert ask(("system", "Be"), ("user", "The"), max_tokens=5).choices[0].message.content == joined
    part = {"type": "text", "text": "Be\n\nThe"}
    parts = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": [part]}], seed=1, max_tokens=5
    )
    assert parts.choices[0].message.content == joined
    long = ask(*[("user", "The fox said"), ("assistant", "I found")] * 4, ("user", "The hen"), max_tokens=9)
    assert "messages were not read" in long.warning
    with pytest.raises(openai.BadRequestError, match="top_logprobs: only with"):
        ask(("user", "The fox"), top_logprobs=2)
    for roles in (["assistant"], ["user", "user"], ["system"], ["system", "assistant"], ["user", "system", "user"]):
        with pytest.raises(openai.BadRequestError, match="messages"):
            ask(*((role, "The fox") for role in roles))


def test_an_answer_goes_on_from_the_assistants_beginning(client, run):
    ask = partial(client.chat.completions.create, model="tiny", seed=1, max_tokens=12)
    answer = ask(messages=[QUESTION, MINE])
    ids = [*prompt_ids(run.tokenizer, [("user", "The fox")]), *run.tokenizer.encode("said")]
    same = client.completions.create(model="tiny", prompt=ids, seed=1, max_tokens=12)
    assert (answer.choices[0].message.content, answer.usage) == (same.choices[0].text, same.usage)
    empty, whole = ask(messages=[QUESTION, {**MINE, "content": None}]), ask(messages=[QUESTION])
    assert empty.choices == whole.choices


@pytest.fixture
def respond(client: openai.OpenAI) -> Callable[..., openai.types.responses.Response]:
    return lambda asked="The fox", **options: client.responses.create(
        model="tiny", input=asked, extra_body={"seed": 2, **options.pop("extra_body", {})}, **options
    )


def test_a_response_is_the_answer_of_the_chat(client, respond):
    turns = [QUESTION, MINE, {"role": "user", "content": "The hen"}]
    chat = client.chat.completions.create(
        model="tiny", messages=[{"role": "system", "content": "Be"}, *turns], seed=2, max_tokens=9, top_p=0.9
    )
    parts = [{**turn, "content": [{"type": "input_text", "text": turn["content"]}]} for turn in turns]
    for asked in (turns, parts):
        answer = respond(asked, instructions="Be", max_output_tokens=9, top_p=0.9)
        assert answer.output_text == chat.choices[0].message.content
        counts = answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens
        assert counts == (chat.usage.prompt_tokens, chat.usage.completion_tokens, chat.usage.total_tokens)
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert (answer.instructions, answer.max_output_tokens, answer.top_p) == ("Be", 9, 0.9)
        openai.types.responses.Response.model_validate(answer.to_dict())  # the client itself checks no types
    ended = respond(extra_body={"stop": respond().output_text[3:5]})
    assert (ended.status, ended.incomplete_details) == ("completed", None)
    again = respond([QUESTION, *ended.output, QUESTION, answer.output[0].to_dict()], max_output_tokens=2)
    assert again.usage.input_tokens > ended.usage.input_tokens


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_streamed_response_says_what_begins_what_is_added_and_what_is_whole(respond, is_cut):
    options = {"max_output_tokens": 9} if is_cut else {"extra_body": {"stop": respond().output_text[3:5]}}
    whole, events = respond(**options), list(respond(stream=True, **options))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for event in events:
        type(event).model_validate(event.to_dict())
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", whole.status]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert "".join(event.delta for event in events[4:-4]) == events[-4].text == whole.output_text
    last, first = events[-1].response, events[0].response
    assert (first.id, first.output, first.status) == (last.id, [], "in_progress")
    assert (last.output[0].content, last.usage) == (whole.output[0].content, whole.usage)
    assert {getattr(event, "item_id", events[2].item.id) for event in events} == {last.output[0].id}


def test_a_streamed_response_that_fails_says_so(client, respond, monkeypatch):
    monkeypatch.setattr(Writing, "add", lambda self, *_: self.fail(ConfigError("the text", "lost", "write again")))
    monkeypatch.setattr(engine_thread._log, "error", lambda *_, **__: None)
    *_, last = respond(stream=True)
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.message == "the text: lost; write again"


RULES = """
end
    3 \\ssly[more]
    1 \\skind[more]

more
    1 .
    1 \\sand poor.
"""
FORM = {"type": "grammar", "syntax": "rules", "definition": RULES}
ENDS = {f" {trait}{more}" for trait in ("sly", "kind") for more in (".", " and poor.")}


@pytest.mark.parametrize("way", [{}, {"exact": True}])
def test_a_text_has_the_form_that_was_asked_for(client, complete, respond, way):
    options = {"max_tokens": 20, "seed": 1, "extra_body": {"response_format": FORM, **way}}
    answer = complete("The fox was", n=2, **options)
    assert {choice.text for choice in answer.choices} <= ENDS
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert complete("The fox was", n=2, **options).choices == answer.choices
    assert answer.usage.completion_tokens <= 2 * 14
    message = client.chat.completions.create(model="tiny", messages=[QUESTION], **options).choices[0].message
    assert message.content in ENDS
    assert respond(text={"format": FORM}, max_output_tokens=20, extra_body=way).output_text in ENDS
    if not way:
        pieces = [chunk.choices[0].text for chunk in complete("The fox was", stream=True, **options)]
        assert "".join(pieces) == answer.choices[0].text
        cut = complete("The fox was", **{**options, "max_tokens": 2}).choices[0]
        assert (cut.finish_reason, any(text.startswith(cut.text) for text in ENDS)) == ("length", True)


def test_a_thought_stands_apart_from_the_answer_and_can_be_sent_back(client):
    rules = "end\n    1 <think>sly</think>fox\n"
    form = {"response_format": {"type": "grammar", "syntax": "rules", "definition": rules}}
    ask = partial(client.chat.completions.create, model="tiny", max_tokens=30)
    message = ask(messages=[QUESTION], extra_body=form).choices[0].message
    assert (message.reasoning_content, message.content) == ("sly", "fox")
    deltas = [chunk.choices[0].delta for chunk in ask(messages=[QUESTION], extra_body=form, stream=True)]
    thoughts, answers = (
        ["".join(getattr(each, name, None) or "" for each in deltas)] for name in ("reasoning_content", "content")
    )
    assert (thoughts, answers) == (["sly"], ["fox"])
    written = ask(messages=[QUESTION, {**MINE, "content": "<think>sly</think>fox"}], seed=1).choices[0].message.content
    assert ask(messages=[QUESTION, message], seed=1).choices[0].message.content == written
    cut = ask(messages=[QUESTION], extra_body=form, max_tokens=8).choices[0].message
    assert "<think>sly</think>fox".startswith(f"<think>{cut.reasoning_content}")
    with pytest.raises(openai.BadRequestError, match="only the assistant has thoughts"):
        ask(messages=[{**QUESTION, "reasoning_content": "sly"}])


@pytest.mark.parametrize(
    ("fields", "param", "what"),
    [
        ({"exact": True}, "exact", "only with a response_format"),
        ({"exact": True, "stream": True, "response_format": FORM}, "exact", "not with stream"),
        *(
            ({"exact": True, "response_format": FORM, **other}, "exact", "a temperature above 0")
            for other in ({"top_p": 0.9}, {"stop": "a"}, {"temperature": 0}, {"stop_token_ids": [5]})
        ),
        ({"exact": True, "max_tokens": 2, "response_format": FORM}, "exact", "0 of the model's texts"),
        ({"min_tokens": 2, "response_format": FORM}, "min_tokens", "not with a response_format"),
        (
            {"response_format": {**FORM, "definition": "toss\n    1 heads, [again]\n"}},
            "response_format",
            "response_format:2: there is no rule 'again'; write it",
        ),
        ({"response_format": {"type": "json_object"}}, "response_format", "pip install 'pellucid[schemas]'"),
    ],
)
def test_a_form_that_cannot_be_kept_to_is_refused(client, monkeypatch, fields, param, what):
    monkeypatch.setitem(sys.modules, "llguidance", None)  # as if it were not installed
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/completions", body={"model": "tiny", "max_tokens": 16, **fields}, cast_to=object)
    assert refused.value.param == param
    assert what in refused.value.message


def test_metrics_count_what_is_served_in_the_format_of_prometheus(client, complete):
    def counted() -> dict[str, float]:
        page = httpx.get(f"{client.base_url.copy_with(path='/metrics')}")
        assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = [line for line in page.text.splitlines() if not line.startswith("# ")]
        values = dict(line.removeprefix("pellucid_").rsplit(" ", 1) for line in lines)
        return {name.removesuffix('{model="tiny"}'): float(value) for name, value in values.items()}

    before = counted()
    answer = complete(["The fox", "The hen"], n=2, max_tokens=5, **GREEDY, logit_bias={"5": 100})
    with client.completions.create(
        model="tiny", prompt="", max_tokens=60, logit_bias={"5": 100}, stream=True
    ) as pieces:
        assert len(list(pieces)) > 1
    vectors = client.embeddings.create(model="tiny", input="The fox")
    after = counted()
    change = {name: after[name] - before[name] for name in after}
    assert change["requests_total"] == 3
    assert change["prompt_tokens_total"] == answer.usage.prompt_tokens + 1 + vectors.usage.prompt_tokens
    assert change["written_tokens_total"] == answer.usage.completion_tokens + 60 == 80
    assert change["request_seconds_total"] > 0
    assert after["texts_running"] == 0


def test_the_runs_are_listed_and_each_is_asked_by_its_name(run, fables_run, tmp_path, monkeypatch):
    """One of them has learned from no conversations, and is moved away."""
    monkeypatch.setattr(served_module, "SECONDS_BETWEEN_CHECKS", 0.0)
    shutil.copytree(fables_run, tmp_path / "other")
    with served(app_of(run.directory.parent, tmp_path / "other")) as address, calling(address) as client:

        def ask(model: str) -> str:
            return client.completions.create(model=model, prompt="The fox", max_tokens=8, **GREEDY).choices[0].text

        expected = {
            "tiny": run.generate("The fox", max_new_tokens=8, temperature=0),
            "other": pellucid.load(fables_run).generate("The fox", max_new_tokens=8, temperature=0),
        }
        tiny, other = client.models.list()
        assert (tiny.id, tiny.context_length, tiny.has_chat_template) == ("tiny", 32, True)
        assert (client.models.retrieve("other"), other.has_chat_template) == (other, False)
        assert {name: ask(name) for name in expected} == expected
        for ask_for_another in (client.models.retrieve, ask):
            with pytest.raises(openai.NotFoundError, match="'gpt' is not here; ask for 'tiny' or 'other'") as caught:
                ask_for_another("gpt")
            assert caught.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError, match="not trained on conversations") as caught:
            client.chat.completions.create(model="other", messages=[QUESTION])
        assert caught.value.code == "no_chat_template"
        (tmp_path / "other").rename(tmp_path / "away")
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert ask("tiny") == expected["tiny"]
        with pytest.raises(openai.InternalServerError, match="other") as caught:
            ask("other")
        assert caught.value.status_code == 503


CHANGE_NOTHING = [
    *({"logit_bias": value} for value in ({}, None)),
    *({"tools": value} for value in ([], None)),
    *({"tool_choice": value} for value in ("none", "auto", None)),
    *({"response_format": value} for value in ({"type": "text"}, None)),
    *({name: None} for name in ("functions", "prediction", "reasoning_effort", "audio", "web_search_options", "n")),
    *({"parallel_tool_calls": value} for value in (True, False)),
    *({"metadata": value} for value in ({}, {"course": "NLP 1"}, None)),
    *({"service_tier": value} for value in ("auto", "default", None)),
    *({"store": value} for value in (False, None)),
    *({"modalities": ["text"]}, {"verbosity": "medium"}, {"user": "a"}, {"safety_identifier": "a"}, {"stop": []}),
    *({"prompt_cache_key": "a"}, {"top_logprobs": 0}, {"presence_penalty": 0}, {"frequency_penalty": 0.0}),
    *({"stream_options": value} for value in ({}, {"include_usage": False}, {"include_obfuscation": False}, None)),
    *({"top_k": value} for value in (0, -1, None)),
    *({"ignore_eos": False}, {"min_tokens": 0}, {"repeat_penalty": 1.0}, {"repetition_penalty": 1}),
    *({"stop_token_ids": []}, {"skip_special_tokens": True}, {"use_beam_search": False}, {"length_penalty": 1.0}),
    {"messages": [{**QUESTION, "name": "bob", "refusal": None}]},
]


def test_a_field_that_changes_nothing_is_passed_over(client):
    body = {"model": "tiny", "messages": [QUESTION], "max_tokens": 6, "seed": 1}

    def said(**extra):
        answer = client.post("/chat/completions", body={**body, **extra}, cast_to=object)
        return answer["choices"][0]["message"]["content"]

    for extra in CHANGE_NOTHING:
        read = ChatRequest.model_validate({**body, **extra})
        assert (read.sampling, read.stops, read.n) == (Sampling(), [], None)
    for order in (CHANGE_NOTHING, CHANGE_NOTHING[::-1]):
        assert said(**dict(ChainMap(*order))) == said()
    for suffix in (None, ""):
        assert client.completions.create(model="tiny", prompt="a", max_tokens=1, suffix=suffix).choices


WOULD_CHANGE_SOMETHING = [
    *({"logit_bias": bias} for bias in ({"a": 5}, {"1": 101}, {"-1": 5}, {"300": 5}, [5])),
    *({"tools": [{"type": "function"}]}, {"tool_choice": "required"}, {"store": True}),
    *({"response_format": form} for form in ({"type": "xml"}, {"type": "grammar"}, "text", {})),
    *({"modalities": ["audio"]}, {"reasoning_effort": "high"}, {"exact": True}),
    *(
        {"ignore_eos": True},
        {"min_tokens": 7},
        {"presence_penalty": 2.1},
        {"top_k": -2},
        {"top_k": False},
        {"max_tokens": -2},
    ),
    *({"prediction": {}}, {"functions": [{}]}, {"stop_token_ids": [300]}, {"top_logprobs": 1}, {"metadata": 5}),
    *({"stream_options": value} for value in ({"include_obfuscation": True}, {"include_usage": True})),
    *({"messages": [{**QUESTION, "content": content}]} for content in (None, 5)),
    *({"messages": [QUESTION, {**MINE, **other}, QUESTION]} for other in ({"refusal": "No."}, {"tool_calls": [{}]})),
    {"messages": [{"role": "tool", "content": "5", "tool_call_id": "a"}]},
]
IMAGE = {"type": "input_image", "image_url": "data:"}
WOULD_CHANGE_A_RESPONSE = [
    *({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"n": 2}, {"max_tokens": 5}, {"store": True}),
    *({"truncation": "disabled"}, {"background": True}, {"include": ["message.output_text.logprobs"]}),
    *({"reasoning": {"effort": "high"}}, {"tools": [{"type": "web_search"}]}, {"max_output_tokens": 0}),
    *({"input": items} for items in ([], [{**QUESTION, "content": [IMAGE]}], [{**QUESTION, "content": None}], [MINE])),
    *({"input": [item]} for item in ({"type": "function_call"}, {"type": "item_reference", "id": "msg_1"})),
]


def test_a_field_that_would_change_something_is_refused_by_its_name(client):
    for extra in WOULD_CHANGE_SOMETHING:
        body = {"model": "tiny", "messages": [QUESTION], "max_tokens": 6, **extra}
        with pytest.raises(openai.BadRequestError) as refused:
            client.post("/chat/completions", body=body, cast_to=object)
        assert refused.value.param.split(".")[0] == next(iter(extra)), extra
    for extra in WOULD_CHANGE_A_RESPONSE:
        with pytest.raises(openai.BadRequestError) as refused:
            client.post("/responses", body={"model": "tiny", "input": "The fox", **extra}, cast_to=object)
        assert refused.value.param.split(".")[0] == next(iter(extra)), extra


def test_a_bias_and_penalties_are_those_of_the_library(complete, run):
    [letter] = run.tokenizer.encode("A")
    ways = [
        {"logit_bias": {str(run.tokenizer.end_of_text): -100}},
        {"presence_penalty": 1.5, "frequency_penalty": -0.5, "logit_bias": {"299": 1, str(letter): 2.5}},
        {"repetition_penalty": 1.3},
    ]
    for way in ways:
        bias = {int(id_): by for id_, by in way.get("logit_bias", {}).items()}
        expected = run.generate("The fox", max_new_tokens=20, seed=5, **{**way, "logit_bias": bias})
        asked = dict(way)
        more = {"repeat_penalty": asked.pop("repetition_penalty")} if "repetition_penalty" in way else {}
        assert complete(max_tokens=20, seed=5, extra_body=more, **asked).choices[0].text == expected
    assert complete(max_tokens=9, logprobs=0, logit_bias={str(letter): 100}, **GREEDY).choices[0].text == "A" * 9
    with pytest.raises(ConfigError, match="logit_bias: 300 is no token"):
        run.generate("The fox", logit_bias={300: 1})


def test_a_token_that_ends_the_text_and_the_least_length_are_asked_for_as_with_vllm(complete, run):
    whole = complete(max_tokens=30, seed=5, logprobs=0).choices[0]
    first = whole.logprobs.tokens.index("M")
    ids = run.tokenizer.encode("M")
    ended = complete(max_tokens=30, seed=5, extra_body={"stop_token_ids": ids})
    assert ended.choices[0].text == "".join(whole.logprobs.tokens[:first])
    assert (ended.choices[0].finish_reason, ended.usage.completion_tokens) == ("stop", first)
    every = list(range(run.tokenizer.vocab_size))
    later = complete(max_tokens=9, extra_body={"stop_token_ids": [i for i in every if i not in ids], "min_tokens": 4})
    assert later.choices[0].text.startswith("MMMM")
    with pytest.raises(openai.BadRequestError, match="min_tokens: all tokens are among stop_token_ids"):
        complete(max_tokens=9, extra_body={"stop_token_ids": every, "min_tokens": 4})


def test_embeddings_are_those_of_the_command_while_others_write(client, run):
    texts = ["The fox", "The hen said: I lost the corn."]
    expected = run.embed(texts)
    with client.completions.create(model="tiny", prompt="", max_tokens=60, seed=0, stream=True) as stream:
        next(iter(stream))
        answer = client.embeddings.create(model="tiny", input=texts)
    as_floats = client.embeddings.create(model="tiny", input=texts[1], encoding_format="float")
    for vectors, vector in zip(expected, answer.data, strict=True):
        assert vector.embedding == vectors.tolist()
    assert as_floats.data[0].embedding == pytest.approx(expected[1].tolist(), abs=1e-5)
    assert answer.usage.prompt_tokens == sum(1 + len(run.tokenizer.encode(text)) for text in texts)
    for wrong, what in (
        (["The", ""], "input: the text: it is empty"),
        ("a" * 99, "99 tokens are more than the 31"),
        ([1], "input.*: Input should be a valid string"),
    ):
        with pytest.raises(openai.BadRequestError, match=what) as refused:
            client.embeddings.create(model="tiny", input=wrong)
        assert refused.value.param.startswith("input")
    with pytest.raises(openai.BadRequestError, match="dimensions: unknown field"):
        client.embeddings.create(model="tiny", input="The", dimensions=2)


def test_minus_one_asks_for_a_text_up_to_its_end(client, complete):
    """As with llama.cpp; not for the 16 tokens of OpenAI's default."""
    whole = complete(max_tokens=4096, seed=3)
    assert complete(max_tokens=-1, seed=3).choices == whole.choices
    ask = {"model": "tiny", "messages": [QUESTION], "seed": 3}
    answers = [client.chat.completions.create(**ask, max_tokens=most) for most in (None, -1)]
    assert answers[0].choices == answers[1].choices


def test_every_answer_can_be_sent_back_as_the_next_request(client, complete):
    """As the client's objects, as their JSON, and joined from a stream; cut off, ended, empty or scored."""
    messages, ask = [], partial(client.chat.completions.create, model="tiny")
    for options in ({"max_tokens": 3}, {"stop": "e"}, {"logprobs": True, "top_logprobs": 1, "max_tokens": 1}, {"n": 2}):
        messages += [QUESTION]
        answer = ask(messages=messages, seed=len(messages), **options)
        as_json = answer.choices[-1].message.model_dump()
        assert ask(messages=[*messages, as_json, QUESTION], max_tokens=1).choices
        chunks = ask(messages=messages, seed=len(messages), stream=True, **options)
        joined: dict[str, str] = {}
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == 0]
        for delta in (choice.delta.model_dump(exclude_unset=True) for choice in choices):
            joined = {key: joined.get(key, "") + value for key, value in {**dict.fromkeys(joined, ""), **delta}.items()}
        assert ask(messages=[*messages, joined, QUESTION], max_tokens=1).choices
        messages += [answer.choices[-1].message]
    empty = [QUESTION, {"role": "assistant"}, QUESTION], [QUESTION, {**MINE, "content": None}, QUESTION]
    assert all(ask(messages=turns, max_tokens=1).choices for turns in empty)
    written = complete(max_tokens=30, logprobs=1, echo=True, seed=1)
    assert complete(written.choices[0].text, max_tokens=1).model == written.model


def test_more_texts_than_ever_fit_are_refused_and_a_long_prompt_is_scored_at_once(complete, run):
    with pytest.raises(openai.BadRequestError, match="64 texts in one request; ask for 48 at most"):
        complete(["The fox"] * 4, n=16)
    text = "é🦊 " * 3_000
    scored = complete(text, max_tokens=0, echo=True, logprobs=0)
    assert (scored.choices[0].text, scored.usage.completion_tokens) == (text, 0)
    scores = scored.choices[0].logprobs
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(text)]
    assert len(scores.text_offset) == len(scores.token_logprobs) == len(ids) > 9_000
    for i in (0, 1, 2, 500):
        assert scores.text_offset[i] == len(run.tokenizer.decode(ids[:i]).rstrip("\ufffd"))
    assert scores.text_offset[-1] == len(text) - 1


@pytest.mark.parametrize(
    ("fields", "param", "what"),
    [
        ({"prompt": []}, "prompt", "at least 1 item"),
        ({"prompt": 5}, "prompt", "a valid string"),
        ({"prompt": "", "stop": list("abcde")}, "stop", "at most 4 items"),
        ({"prompt": "", "stop": [""]}, "stop.0", "at least 1 character"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content.0.type", "'text'"),
    ],
)
def test_a_refusal_names_the_field_and_what_it_should_have_been(client, fields, param, what):
    route = "/chat/completions" if "messages" in fields else "/completions"
    with pytest.raises(openai.BadRequestError) as refused:
        client.post(route, body={"model": "tiny", **fields}, cast_to=object)
    assert refused.value.param == param
    assert f"{param}: " in refused.value.message
    assert what in refused.value.message


def test_a_character_that_the_vocabulary_lacks_is_the_fault_of_the_prompt():
    characters = train_characters([VERSES], special_tokens=["<|endoftext|>"])
    with pytest.raises(ApiError, match="🦊") as refused:
        read_prompts(CompletionRequest(model="tiny", prompt="🦊"), characters)
    assert (refused.value.status, refused.value.param) == (400, "prompt")


def writing_of(run, **options: object) -> Writing:
    return Writing([0, 1], 3, text=TextStream(run.tokenizer), **options)


@pytest.mark.parametrize("method", ["step", "__init__"])
def test_an_engine_that_fails_says_so_and_goes_on(run, monkeypatch, method):
    works, fails = getattr(Engine, method), [True]

    def fails_once(*arguments: object, **options: object) -> object:
        if fails:
            fails.pop()
            raise MemoryError
        return works(*arguments, **options)

    monkeypatch.setattr(Engine, method, fails_once)
    monkeypatch.setattr(engine_thread._log, "exception", lambda *_: None)

    async def ask() -> list[object]:
        engine = EngineThread(run.model, run.tokenizer, run.precision)
        outcomes: list[object] = []
        for _ in range(2):
            job = engine.submit([writing_of(run, seed=(1,))], is_streamed=False)
            try:
                await asyncio.wait_for(job.end(), GIVES_UP_AFTER_SECONDS)
                outcomes.append(len(job.writings[0].token_ids))
            except Exception as error:
                outcomes.append(str(error))
            engine.release(job)
        engine.close()
        return outcomes

    assert asyncio.run(ask()) == ["the engine failed: memory is full; ask for fewer or shorter texts at once", 3]


def test_a_request_that_fails_in_the_engine_ends_no_other(run, monkeypatch):
    """The log has what ended it, and nothing else keeps a tensor of it."""
    logged, kept = [], []

    def log(*_: object, exc_info: Exception) -> None:
        logged.extend(traceback.format_exception(exc_info))

    def fails(*_: object) -> None:
        activations = torch.zeros(3)
        kept.append(weakref.ref(activations))
        try:
            raise MemoryError
        except MemoryError as cause:
            raise RuntimeError("no room") from cause

    monkeypatch.setattr(engine_thread._log, "error", log)
    monkeypatch.setattr(Writing, "add_prompt_tokens", fails)

    async def ask() -> list[object]:
        engine = EngineThread(run.model, run.tokenizer, run.precision)
        writings = [writing_of(run, seed=(i,), scores_prompt=i == 1) for i in range(3)]
        jobs = [engine.submit([writing], is_streamed=False) for writing in writings]
        outcomes = await asyncio.gather(*(job.end() for job in jobs), return_exceptions=True)
        for job in jobs:
            engine.release(job)
        engine.close()
        return [outcome and str(outcome).partition(":")[0] for outcome in outcomes] + [
            len(job.writings[0].token_ids) for job in jobs
        ]

    assert asyncio.run(ask()) == [None, "the engine failed", None, 3, 0, 3]
    assert "in fails" in "".join(logged)
    gc.collect()
    assert kept[0]() is None


def test_a_job_has_failed_as_soon_as_one_of_its_texts_has():
    async def ask() -> None:
        job = Job([Writing([0], 3)], is_streamed=False)
        job.writings[0].fail(ConfigError("top_p", "too small", "give a larger one"))  # before its engine takes note
        await job.end()

    with pytest.raises(ApiError, match="too small"):
        asyncio.run(ask())


def test_a_long_answer_does_not_hold_up_the_server(client, monkeypatch):
    """While the engine is in the middle of it, other requests are answered."""
    step, has_been_asked, written = Engine.step, threading.Event(), []

    def step_if_asked(engine):
        if any(writing.pieces for writing in written):
            has_been_asked.wait(GIVES_UP_AFTER_SECONDS)
        written[:] = step(engine)
        return written

    monkeypatch.setattr(Engine, "step", step_if_asked)
    with client.completions.create(model="tiny", prompt="", max_tokens=60, seed=0, stream=True) as stream:
        pieces = iter(stream)
        next(pieces)
        try:
            health, metrics = (
                httpx.get(f"{client.base_url.copy_with(path=path)}", timeout=GIVES_UP_AFTER_SECONDS)
                for path in ("/health", "/metrics")
            )
        finally:
            has_been_asked.set()
        assert health.json()["status"] == "ok"
        assert 'pellucid_texts_running{model="tiny"} 1\n' in metrics.text
        assert len(list(pieces)) > 1


def test_the_error_of_a_run_that_is_gone_keeps_nothing_of_the_requests_that_met_it(tmp_path):
    gone = ServedRun("tiny", tmp_path / "tiny")

    async def ask() -> int:
        with pytest.raises(CheckpointError) as met:
            await gone.current()
        return len(traceback.extract_tb(met.value.__traceback__))

    asyncio.run(ask())
    assert asyncio.run(ask()) == asyncio.run(ask())


def test_before_its_first_checkpoint_a_run_is_served_with_its_newest_snapshot(run, tmp_path, monkeypatch):
    monkeypatch.setattr(served_module, "SECONDS_BETWEEN_CHECKS", 0.0)
    copy = tmp_path / "tiny"
    saved = read_checkpoint(run.directory)
    copy.mkdir()

    async def steps() -> list[int]:
        served_run, found = ServedRun("tiny", copy), []
        for step in (1, 3):
            write_snapshot(copy, replace(saved, state=saved.state.model_copy(update={"step": step})))
            found.append((await served_run.current()).trained.step)
        write_checkpoint(copy, replace(saved, state=saved.state.model_copy(update={"step": 2})))
        found.append((await served_run.current()).trained.step)
        served_run.close()
        return found

    assert asyncio.run(steps()) == [1, 3, 2]
