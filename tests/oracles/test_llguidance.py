"""JSON schemas and grammars by llguidance: what is written fits, and where we know the form ourselves, masks agree."""

import json
import random
import re

import pytest

from pellucid.generation.grammar_form import GrammarForm
from pellucid.languages.grammar.own import OwnGrammar
from pellucid.languages.grammar.portrait import all_texts
from pellucid.tokenizer.train import train_byte_pairs, train_characters
from pellucid.web.errors import ApiError
from pellucid.web.openai.constrained import read_form
from pellucid.web.openai.schemas import ChatRequest, CompletionRequest, ResponseRequest

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

END = "<|endoftext|>"
SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["fox", "hén", "🦊"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
        "is_sly": {"type": "boolean"},
        "friends": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
    },
    "required": ["animal", "age", "is_sly"],
    "additionalProperties": False,
}
CORPUS = ['{"animal": "fox", "age": 3, "is_sly": true}', '{"animal":"hén","age":12,"is_sly":false,"friends":["🦊"]}']
GRAMMAR = OwnGrammar("word\n    1 a[end]\n    1 é[end]y\n    1 yy🦊[end]\nend\n    1 x\n    1 by\n", "word")
TOKENIZERS = {
    "byte pairs": train_byte_pairs([*CORPUS, *all_texts(GRAMMAR)] * 3, vocab_size=300, special_tokens=[END, "<|end|>"]),
    "characters": train_characters([*CORPUS, *all_texts(GRAMMAR), *"0123456789[],.-+eEu\\/"], special_tokens=[END]),
}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]


def form_of(tokenizer, response_format):
    return read_form(CompletionRequest(model="tiny", response_format=response_format), tokenizer)


def draw(form, tokenizer, rng, most=400):
    """A text of tokens drawn evenly, which ends as soon as it may."""
    beginning, ids = form.begin(), []
    while len(ids) < most:
        allowed = set(beginning.allowed().nonzero()[:, 0].tolist())
        assert allowed
        if allowed.issuperset(tokenizer.stop_ids):
            return tokenizer.decode(ids)
        assert not allowed.intersection(tokenizer.control_ids)
        ids.append(rng.choice(sorted(allowed)))
        beginning.add(ids[-1])
    return None


def test_what_is_written_fits_the_schema(tokenizer):
    form, rng = form_of(tokenizer, {"type": "json_schema", "json_schema": {"schema": SCHEMA}}), random.Random(0)
    texts = [draw(form, tokenizer, rng) for _ in range(60)]
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(texts)) > 20
    assert not any(re.search(r"[ ]{2}|\n", text) for text in texts if "friends" not in text)


def test_any_object_and_regular_expressions(tokenizer):
    form, rng = form_of(tokenizer, {"type": "json_object"}), random.Random(0)
    whole = [text for text in (draw(form, tokenizer, rng) for _ in range(30)) if text is not None]
    assert whole
    assert all(isinstance(json.loads(text), dict) for text in whole)
    form = form_of(tokenizer, {"type": "grammar", "syntax": "regex", "definition": "[ab]{2,5}x"})
    assert all(re.fullmatch("[ab]{2,5}x", draw(form, tokenizer, rng)) for _ in range(20))


def test_our_rules_allow_the_tokens_that_llguidance_allows_for_the_same_texts(tokenizer):
    """Where only one text goes on, llguidance allows the usual spelling alone; we allow all."""
    lark = "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in all_texts(GRAMMAR))
    theirs = form_of(tokenizer, {"type": "grammar", "syntax": "lark", "definition": lark})
    rng, ours = random.Random(0), GrammarForm(GRAMMAR.grammar, tokenizer)
    for _ in range(20):
        one, other = ours.begin(), theirs.begin()
        while True:
            allowed = set(one.allowed().nonzero()[:, 0].tolist())
            theirs_allowed = set(other.allowed().nonzero()[:, 0].tolist())
            assert theirs_allowed == allowed or (len(theirs_allowed) == 1 and theirs_allowed < allowed)
            going_on = sorted(theirs_allowed.difference(tokenizer.stop_ids))
            if not going_on:
                break
            id_ = rng.choice(going_on)
            one.add(id_)
            other.add(id_)


@pytest.mark.parametrize(
    ("response_format", "what"),
    [
        ({"type": "json_schema", "json_schema": {"schema": {"type": "fox"}}}, "fox"),
        ({"type": "json_schema", "json_schema": {"schema": {"not": {}}}}, "not"),
        ({"type": "grammar", "syntax": "lark", "definition": "start: fox"}, "fox"),
        ({"type": "grammar", "syntax": "regex", "definition": "(a"}, "unclosed"),
    ],
)
def test_what_llguidance_cannot_read_is_refused_in_one_line(response_format, what):
    with pytest.raises(ApiError, match=what) as refused:
        form_of(TOKENIZERS["byte pairs"], response_format)
    assert (refused.value.status, refused.value.param) == (400, "response_format")
    assert "\n" not in refused.value.message


def test_a_schema_is_read_from_chats_and_responses_alike():
    asked = {"name": "animal", "strict": True, "schema": SCHEMA}
    chat = ChatRequest(
        model="tiny",
        messages=[{"role": "user", "content": "The"}],
        response_format={"type": "json_schema", "json_schema": asked},
    )
    response = ResponseRequest(model="tiny", input="The", text={"format": {"type": "json_schema", **asked}})
    assert chat.form_source == response.form_source == ("schema", SCHEMA)
