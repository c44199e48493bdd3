"""Tokenizers of other projects give exactly the ids of their own library, or are refused in one line."""

import json
import unicodedata

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken as Token
from tokenizers import Regex, models, normalizers, pre_tokenizers

import foreign_tokenizers as foreign
from pellucid.errors import DataError
from pellucid.tokenizer import Tokenizer

KINDS = [foreign.gpt2, foreign.llama, foreign.qwen, foreign.llama2, foreign.gemma]
LIBRARY = {kind.__name__: kind() for kind in KINDS}
OURS = {name: Tokenizer.from_json(library.to_str()) for name, library in LIBRARY.items()}
for each in LIBRARY.values():
    each.encode_special_tokens = True
BY_NAME = pytest.mark.parametrize("name", LIBRARY)
SPELLED = st.sampled_from(["<|endoftext|>", "<|eot_id|>", "<think>", ".\n\n", " \n", "'S", "1234", "   a", "é"])
TEXTS = st.lists(SPELLED | st.text(max_size=8) | st.text(" \n\r\ta'sS.,1é猫", max_size=8), max_size=8).map("".join)


@BY_NAME
@given(texts=st.lists(TEXTS, max_size=3))
def test_ids_are_those_of_the_library_without_what_its_template_adds(name, texts):
    expected = [LIBRARY[name].encode(text, add_special_tokens=False).ids for text in texts]
    assert [OURS[name].encode(text) for text in texts] == expected
    assert [ids.tolist() for ids in OURS[name].encode_batch(texts)] == expected


@BY_NAME
@given(text=TEXTS)
def test_text_comes_back_but_for_accents_of_qwen_and_the_sign_that_pieces_have_for_a_blank(name, text):
    expected = unicodedata.normalize("NFC", text) if name == "qwen" else text
    expected = expected.replace("▁", " ") if name in ("llama2", "gemma") else expected
    ids = OURS[name].encode(text)
    assert OURS[name].decode(ids) == expected
    if "\ufffd" not in LIBRARY[name].decode(ids):
        assert OURS[name].decode(ids) == LIBRARY[name].decode(ids)


@pytest.mark.parametrize("kind", [foreign.llama2, foreign.llama2_as_saved_today])
@given(texts=st.lists(TEXTS.filter(lambda text: not text.startswith((" ", "▁"))), min_size=1, max_size=3))
def test_the_blank_that_llama_2_puts_before_a_text_is_no_part_of_it(kind, texts):
    library = kind()
    ours = Tokenizer.from_json(library.to_str())
    assert ours.lead == b" "
    for text in texts:
        ids = ours.encode(text)
        assert ours.decode(ids) == library.decode(ids) == text.replace("▁", " ")
        assert ours.decode(ids, goes_on=True) == (" " + ours.decode(ids) if text else "")
        assert b"".join(ours.spelled(ids)).decode() == ours.decode(ids)
        assert ours.encode(ours.as_a_start(" " + text)) == ids
    with pytest.raises(DataError, match="'to be' follows a part that is too long .* and begins with no blank"):
        ours.as_a_start("to be")


def test_a_token_that_swallows_blanks_is_met_only_by_text_that_is_not_learned():
    """That of Phi-3 mini has one: </s>, which is not special there."""
    library = foreign.llama2()
    library.add_tokens([Token("</end>", rstrip=True, normalized=False)])
    ours = Tokenizer.from_json(library.to_str())
    assert ours.encode("The </end>  hen") == library.encode("The </end>  hen", add_special_tokens=False).ids
    assert ours.decode(ours.encode_exactly(["The </end>"])[0].tolist()) == "The </end>"
    with pytest.raises(DataError, match="text: the tokenizer changes it"):
        ours.encode_exactly(["The </end>  hen"])


@given(text=st.text("The foxhnraidst,.1!", max_size=20))
def test_unigram_gives_the_ids_of_its_library_and_refuses_to_learn_what_it_would_change(text):
    library = foreign.t5()
    ours = Tokenizer.from_json(library.to_str())
    ids = library.encode(text, add_special_tokens=False).ids
    assert (ours.end_of_text, ours.stop_ids, ours.lead, ours.merges) == (1, (1,), b" ", {})
    assert ours.encode(text) == ids
    assert ours.decode(ids) == library.decode(ids)
    if ours.decode(ids) == text:
        assert [each.tolist() for each in ours.encode_exactly([text])] == [ids]
    else:
        with pytest.raises(DataError, match="text: the tokenizer changes it"):
            ours.encode_exactly([text])


@pytest.mark.parametrize("unknown", ["ж", "</s>", "<unk>"])
def test_a_vocabulary_of_characters_refuses_others_and_the_names_of_its_control_tokens(unknown):
    ours = Tokenizer.from_json(foreign.t5().to_str())
    for encode in (ours.encode, lambda text: ours.encode_batch([text])):
        with pytest.raises(DataError, match="is not in the vocabulary, or the name of a control token; leave it out"):
            encode(f"The {unknown} ran")


def test_only_gpt2_cuts_a_text_into_words_as_pellucid_does_and_only_qwen_may_change_one():
    assert [name for name, ours in OURS.items() if ours.has_words] == ["gpt2"]
    assert [name for name, ours in OURS.items() if ours.is_lossless] == ["gpt2", "llama"]
    assert OURS["llama"].encode("end.\n\n") != OURS["llama"].encode("end.") + OURS["llama"].encode("\n\n")


def test_the_template_says_what_begins_and_what_ends_a_text():
    assert (OURS["gpt2"].end_of_text, OURS["gpt2"].stop_ids) == (309, (309,))
    assert (OURS["llama"].end_of_text, OURS["llama"].stop_ids) == (307, (307,))
    assert (OURS["qwen"].end_of_text, OURS["qwen"].stop_ids) == (305, (305,)), "without one, the first control token"
    library = foreign.llama()
    library.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A <|end_of_text|> <|eot_id|>",
        special_tokens=[("<|begin_of_text|>", 307), ("<|end_of_text|>", 308), ("<|eot_id|>", 309)],
    )
    ours = Tokenizer.from_json(library.to_str())
    assert (ours.end_of_text, ours.stop_ids) == (307, (307, 308, 309))
    assert ours.encode("a") == OURS["llama"].encode("a")


def test_a_token_that_is_not_special_is_the_text_that_it_spells():
    qwen = OURS["qwen"]
    [id_] = qwen.encode("<think>")
    assert qwen.token_bytes(id_) == b"<think>"
    assert id_ not in qwen.control_ids


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)


def changed(**parts):
    """GPT-2's tokenizer with other parts."""
    library = foreign.gpt2()
    for name, part in parts.items():
        setattr(library, name, part)
    return library.to_str()


def with_added(token: Token) -> str:
    library = foreign.gpt2()
    library.add_special_tokens([token]) if token.special else library.add_tokens([token])
    return library.to_str()


def with_gap() -> str:
    description = json.loads(foreign.gpt2().to_str())
    description["model"]["vocab"]["one more"] = 1000
    return json.dumps(description)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (tokenizers.Tokenizer(models.WordPiece({"a": 0}, unk_token="a")).to_str(), "its model is WordPiece"),
        (tokenizers.Tokenizer(models.BPE({"a": 0}, [])).to_str(), "no control token ends a document"),
        (tokenizers.Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True)).to_str(), "not runs of bytes"),
        (foreign.gpt2().to_str().replace('prefix":null', 'prefix":"\\\\u0000"'), "it marks tokens inside words"),
        (changed(normalizer=normalizers.Lowercase()), "it changes the text first \\(Lowercase\\)"),
        (changed(pre_tokenizer=pre_tokenizers.Metaspace()), "it leaves out characters that it lacks"),
        (
            changed(pre_tokenizer=pre_tokenizers.Metaspace(), normalizer=normalizers.Lowercase()),
            "text first .Lowercase",
        ),
        (changed(normalizer=normalizers.Prepend("_▁")), "it changes the text first \\(Prepend\\)"),
        (changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)), "where it cuts it \\(ByteLevel\\)"),
        (changed(pre_tokenizer=None), "across blanks"),
        (with_added(Token("cat", rstrip=True)), "its token 'cat' swallows the blanks beside it"),
        (with_added(Token("e", special=True)), "its control token 'e' is also a token of ordinary text"),
        (changed(pre_tokenizer=pre_tokenizers.Sequence([BYTE_LEVEL, BYTE_LEVEL])), "it writes bytes as symbols twice"),
        (with_gap(), r"its ids have gaps: 31\d tokens, the last with id 1,00\d"),
    ],
)
def test_what_cannot_be_expressed_is_refused_in_one_line(text, reason):
    with pytest.raises(DataError, match=f"tokenizer.json: a tokenizer that Pellucid cannot express: .*{reason}"):
        Tokenizer.from_json(text)


CUTS = st.builds(
    lambda rules, use_regex: pre_tokenizers.Sequence(
        [*rules, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)]
    ),
    st.lists(
        st.builds(
            pre_tokenizers.Split,
            st.sampled_from(["a", " ", Regex("a|"), Regex(r"\s+"), Regex("(?i)s"), Regex("é?")]),
            st.sampled_from(["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]),
            st.booleans(),
        )
        | st.just(pre_tokenizers.Digits(True))
        | st.just(BYTE_LEVEL),
        max_size=2,
    ),
    st.booleans(),
)
KINDS_OF_TOKEN = ("lstrip", "rstrip", "single_word", "normalized", "special")
ADDED = st.builds(
    lambda text, *yes: Token(text, **dict(zip(KINDS_OF_TOKEN, yes, strict=True))),
    st.sampled_from(["a", " a", "th", "Ġt", "é", "e\u0301", "猫", "Ã©", "a a"]),
    *[st.sampled_from([False, False, False, True])] * 5,
)


@given(
    cuts=CUTS,
    added=st.lists(ADDED, max_size=3),
    is_nfc=st.booleans(),
    ignore_merges=st.booleans(),
    texts=st.lists(TEXTS | st.text(" aathéé猫Ġ", max_size=12), max_size=4),
)
def test_a_tokenizer_that_is_accepted_keeps_a_text_or_refuses_to_learn_it(cuts, added, is_nfc, ignore_merges, texts):
    library = foreign.gpt2()
    library.pre_tokenizer, library.model.ignore_merges = cuts, ignore_merges
    library.normalizer = normalizers.NFC() if is_nfc else None
    for token in added:
        library.add_special_tokens([token]) if token.special else library.add_tokens([token])
    try:
        ours = Tokenizer.from_json(library.to_str())
    except DataError:
        return
    for text in texts:
        comes_back = ours.decode(ours.encode(text)) == text
        if comes_back:
            assert [ours.decode(ids.tolist()) for ids in ours.encode_exactly([text])] == [text]
        else:
            assert not ours.is_lossless
            with pytest.raises(DataError, match="text: the tokenizer changes it"):
                ours.encode_exactly([text])


def test_a_rule_that_never_ends_is_refused_when_it_is_read_or_when_it_is_met():
    def cut_by(rule):
        return changed(
            pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(rule), "isolated"), BYTE_LEVEL])
        )

    with pytest.raises(DataError, match="the tokenizer's rules fail on it"):
        Tokenizer.from_json(cut_by("(x+x+)+y"))
    with pytest.raises(DataError, match="text: the tokenizer's rules fail on it"):
        Tokenizer.from_json(cut_by("((xy)+(xy)+)+z")).encode(40 * "xy")
