"""What the page is sent, where no journey through the page (test_page.py) shows whether it is right."""

import base64
import threading

import numpy as np
import pytest
import torch
from torch import nn

from model.model_axes import tiny_config
from pellucid import load, train
from pellucid.config.shipped import DEMO
from pellucid.data.truth import truth_of_answers
from pellucid.errors import CheckpointError, ConfigError
from pellucid.inspection.build import known_corpus_of
from pellucid.inspection.inside import recorded
from pellucid.inspection.interventions import nothing, replaced
from pellucid.languages.fables.world import other_heroes
from pellucid.model.attention import MultiHeadAttention
from pellucid.model.build import build_feed_forward
from pellucid.tokenizer.chat import prompt_ids
from pellucid.web.cache import Cache
from pellucid.web.export import or_none
from pellucid.web.microscope import Changes, Microscope, table_in_file
from pellucid.web.runs import MOST_BYTES_OF_TRACES, Runs
from pellucid.web.schemas import N_FABLES
from pellucid.web.truths import truth_of_answer

DTYPES = {"float16": np.float16, "float32": np.float32, "int32": np.int32}
TEXT = "There was once a"


def unpacked(tensor):
    data = np.frombuffer(base64.b64decode(tensor["data"]), DTYPES[tensor["dtype"]])
    return torch.from_numpy(data.reshape(tensor["shape"]).astype(np.float64))


def test_a_trace_of_experts_has_the_shares_that_their_router_gave(fables_run):
    microscope = Microscope([fables_run])
    assert "experts" not in microscope.trace("fables@4", TEXT)
    microscope = Microscope([fables_run])
    model, heard = microscope.runs.open("fables@4").model, []
    for block in model.blocks:
        config = tiny_config(d_model=16, feed_forward={"type": "moe", "n_experts": 3, "top_k": 2})
        block.feed_forward.sublayer = build_feed_forward(config)
        block.feed_forward.sublayer.router.register_forward_hook(lambda _, __, p_BTE: heard.append(p_BTE[0].detach()))
    sent = unpacked(microscope.trace("fables@4", TEXT)["experts"])
    p_LTE = torch.stack(heard[:2]).double()
    is_chosen_LTE = p_LTE > p_LTE.min(dim=-1, keepdim=True).values
    chosen_LTE = p_LTE * is_chosen_LTE
    torch.testing.assert_close(sent, chosen_LTE / chosen_LTE.sum(dim=-1, keepdim=True), atol=1e-6, rtol=0)


def test_what_each_part_adds_is_sent_for_the_likeliest_tokens(fables_run, lstm_run):
    microscope = Microscope([fables_run, lstm_run])
    answer = microscope.logits("fables@4", TEXT, 2)
    added, logits_V = answer["added"], unpacked(answer["logits"])[-1]
    assert added["at"] == answer["at"] == 2
    assert added["ids"] == logits_V.topk(5).indices.tolist()
    parts_NM, heads_LHM = unpacked(added["parts"]), unpacked(added["heads"])
    torch.testing.assert_close(parts_NM.sum(0), logits_V[added["ids"]], atol=1e-4, rtol=0)
    torch.testing.assert_close(heads_LHM.sum(1), parts_NM[1::2], atol=1e-4, rtol=0)
    assert microscope.logits("lstm@1", TEXT)["added"] is None


def test_an_example_ends_where_the_skill_that_it_is_named_after_is_needed(fables_run):
    microscope = Microscope([fables_run])
    corpus = known_corpus_of(load(fables_run).trained, "test")
    recall = corpus.language.skills.index("recall")

    [text] = [example["text"] for example in microscope.runs.examples("fables@4") if example["skill"] == "recall"]

    whole = next(piece.text for piece in corpus.pieces("validation") if piece.text.startswith(text))
    assert recall in corpus.language.skills_of(whole)[len(text) : len(text) + 2]


def test_a_checkpoint_that_is_not_there_is_an_error_with_a_way_out(fables_run):
    microscope = Microscope([fables_run])

    for name in ("fables@5", "fables@" + "9" * 5_000, "fables", "other@4"):
        with pytest.raises(ConfigError, match="choose one"):
            microscope.trace(name, TEXT)


def test_of_the_shipped_demo_it_is_known_at_once_what_each_part_is_for(monkeypatch):
    def measured_again(*_args, **_options):
        raise AssertionError("run scripts/measure.py shipped_demo: parts.json is of another demo")

    monkeypatch.setattr("pellucid.web.microscope.held_out_documents", measured_again)
    done_by = Microscope([DEMO]).knock_out("demo@4200", N_FABLES)["attribution"]["done_by"]
    assert done_by["recall"]


def test_what_is_traced_meanwhile_is_not_knocked_out_of_the_copy_that_measures(fables_run):
    microscope, alone = Microscope([fables_run]), Microscope([fables_run]).knock_out("fables@4", 2)
    opened, _ = microscope.traced("fables@4", TEXT)
    measured = []
    is_off = {("head", 0, 0): nothing(("head", 0, 0), opened.model)}
    with microscope._forward, replaced(opened.model, is_off):  # as a trace does, which is not done yet
        thread = threading.Thread(target=lambda: measured.append(microscope.knock_out("fables@4", 2)))
        thread.start()
        thread.join(0.5)
    thread.join()

    assert measured == [alone]


@pytest.mark.parametrize("asked", ["inside", "logits"])
def test_what_a_layer_computes_again_is_no_part_of_what_is_traced_meanwhile(fables_run, asked):
    """Its steps, and what its heads add: with the modules whose outputs a trace records."""
    microscope = Microscope([fables_run])
    opened, traced = microscope.traced("fables@4", TEXT)
    shown = []
    with microscope._forward, recorded(opened.model) as record:  # as a trace does, which is not done yet
        thread = threading.Thread(target=lambda: shown.append(getattr(microscope, asked)("fables@4", TEXT, 0)))
        thread.start()
        thread.join(0.5)
        assert not record.outputs
        with torch.no_grad():
            opened.model.hidden(torch.tensor([traced.ids]))
    thread.join()
    if asked == "inside":
        assert [step["name"] for step in shown[0]["steps"]] == [step.name for step in traced.inside(0)]
    else:
        assert len(shown[0]["added"]["ids"]) == 5


def test_two_runs_of_one_name_stay_apart(tmp_path):
    for name in ("fables", "seed-0"):
        paths = [tmp_path / folder / name for folder in "abc"]
        assert Runs(paths).folders == dict(zip([name, f"{name}-2", f"{name}-3"], paths, strict=True))


def test_of_two_runs_the_one_that_is_gone_says_so_and_the_other_goes_on(fables_run, tmp_path):
    runs = Runs([fables_run, tmp_path / "gone"])
    alone = Runs([fables_run]).described()["runs"]

    found, gone = runs.described()["runs"]

    assert [found] == alone
    assert "problem" not in found
    assert (gone["name"], gone["checkpoints"]) == ("gone", [])
    assert "this folder is gone" in gone["problem"]
    assert runs.metrics("fables")
    with pytest.raises(CheckpointError, match="this folder is gone"):
        runs.metrics("gone")


def test_models_stay_in_memory_as_long_as_they_fit_with_all_the_traces_that_each_may_keep(
    fables_run, lstm_run, monkeypatch
):
    monkeypatch.setattr("pellucid.web.runs.MOST_BYTES_OF_MODELS", 2 * MOST_BYTES_OF_TRACES + 10**6)
    runs = Runs([fables_run, lstm_run])
    first, *later = (runs.open(checkpoint) for checkpoint in ("fables@2", "fables@4", "lstm@1"))
    assert [runs.open("fables@4"), runs.open("lstm@1")] == later
    assert runs.open("fables@2") is not first


def test_the_oldest_of_what_is_kept_goes_and_the_newest_stays_however_large():
    kept, computed = Cache(5, size=len), []

    def get(text):
        return kept.get(text, lambda: computed.append(text) or text)

    for text in ("aa", "bbb", "aa", "cc", "bbb", "dddddddd", "dddddddd", "cc"):
        assert get(text) == text

    assert computed == ["aa", "bbb", "cc", "bbb", "dddddddd", "cc"]


def test_of_tokens_that_reach_across_words_no_truth_is_told(fables_run, monkeypatch):
    microscope = Microscope([fables_run])
    monkeypatch.setattr(microscope.runs.open("fables@4").tokenizer, "has_words", False)

    assert microscope.truth("fables@4", TEXT) == {"known": False}
    assert {example["skill"] for example in microscope.runs.examples("fables@4")} == {None}
    assert or_none(microscope.knock_out, "fables@4", 7) is None


def test_where_weights_are_no_shares_the_costs_are_known_and_nothing_is_said_of_looks(fables_run, tmp_path):
    changes = {"model.attention": "linear", "model.position": {"type": "rope"}}
    data = fables_run.parent / "data"
    train(fables_run / "config.yaml", tmp_path / "turned", overrides=changes, steps=1, data_dir=data)
    microscope = Microscope([tmp_path / "turned"])
    table = microscope.knock_out("turned@1", 2)
    assert table["attribution"] is None
    assert [row["name"] for row in table["knocked_out"]][:3] == ["head 0.0", "head 0.1", "attention 0"]
    with pytest.raises(ConfigError, match="do not sum to 1"):
        microscope.heads("turned@1")


def test_what_looks_inside_a_model_of_another_kind_is_refused_in_one_line(lstm_run):
    microscope = Microscope([lstm_run])
    for ask in (
        lambda: microscope.heads("lstm@1"),
        lambda: microscope.inside("lstm@1", TEXT, 0),
        lambda: microscope.knock_out("lstm@1", 2),
        lambda: microscope.trace("lstm@1", TEXT, changes=Changes([("head", 0, 0)])),
        lambda: load(lstm_run).trace(TEXT),
    ):
        with pytest.raises(ConfigError, match="no attention heads and no residual stream; take a run of model.type"):
            ask()


class Previous(MultiHeadAttention):
    """An attention of one's own: each token sees the one before it."""

    def gather(self, q_BHTK, k_BGTK, v_BGTK, cache):
        return self.share_among_heads(torch.cat([v_BGTK[:, :, :1], v_BGTK[:, :, :-1]], dim=2))


class Still(nn.Module):
    """One without heads: each token sees itself."""

    def forward(self, x_BTD, cache):
        return x_BTD


def with_own_attention(run, kind):
    """The run and a microscope of it, with such an attention in each layer."""
    loaded, microscope = load(run), Microscope([run])
    for model in (loaded.model, microscope.runs.open("fables@4").model):
        for block in model.blocks:
            if kind is Still:
                block.attention.sublayer = Still()
            else:
                block.attention.sublayer.__class__ = kind
    return loaded, microscope


def test_an_attention_of_ones_own_is_shown_as_it_computes(fables_run):
    run, microscope = with_own_attention(fables_run, Previous)
    sent = microscope.trace("fables@4", TEXT)
    logits_TV = run.model(torch.tensor([sent["ids"]]))[0].detach()
    torch.testing.assert_close(unpacked(sent["logits"])[-1], logits_TV[-1].double(), atol=1e-5, rtol=0)
    explanation = run.explain(TEXT, attention="all")
    nats = -logits_TV.log_softmax(-1)[range(len(sent["ids"]) - 1), sent["ids"][1:]]
    assert [row.model_nats for row in explanation.rows] == pytest.approx(nats.tolist(), abs=1e-5)
    for weights_TS in explanation.attention.weights.values():
        assert weights_TS[1:].tolist() == np.eye(len(weights_TS))[:-1].tolist()
    names = [step["name"] for step in microscope.inside("fables@4", TEXT, 1)["steps"]]
    assert names[:7] == ["x", "norm(x)", "v", "weights", "heads", "output", "new x"]
    assert {head.name for head in run.heads(fables=2).scores} == {"previous token"}
    assert {head["scores"]["previous token"] for head in microscope.heads("fables@4")["heads"]} == {1.0}


def test_of_an_attention_without_heads_only_what_comes_out_is_shown(fables_run):
    run, microscope = with_own_attention(fables_run, Still)
    for ask in (microscope.heads, lambda name: microscope.trace(name, TEXT), lambda _: run.heads(fables=2)):
        with pytest.raises(ConfigError, match="Still does not weigh values"):
            ask("fables@4")
    ids = [run.tokenizer.end_of_text, *run.tokenizer.encode(TEXT)]
    nats_T = -run.model(torch.tensor([ids]))[0, :-1].log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
    assert [row.model_nats for row in run.explain(TEXT).rows] == pytest.approx(nats_T.tolist(), abs=1e-5)
    costs = run.knock_out(fables=2).rows
    assert [row.name for row in costs] == ["attention 0", "feed_forward 0", "attention 1", "feed_forward 1"]


def test_a_conversation_is_read_in_its_template_and_the_truth_about_an_answer_is_that_of_all_answers_to_its_question(
    chat_run,
):
    microscope, tokenizer = Microscope([chat_run]), load(chat_run).tokenizer
    example = microscope.trace("chat@1", microscope.runs.examples("chat@1")[0]["text"])
    assert tokenizer.control_id("<|assistant|>") in example["ids"]
    long = microscope.trace("chat@1", "Tell me a story about a fox." * 100)
    assert (len(long["ids"]), long["is_cut"]) == (256, True)

    corpus = microscope.runs.corpus(microscope.runs.open("chat@1"))
    conversation = next(corpus.conversations("validation"))
    question, answer = (turn.text for turn in conversation)
    [(nats, _)] = truth_of_answers(corpus, tokenizer, iter([conversation]))

    short = answer[:40].rpartition(" ")[0]
    begun = f"<|user|>{question}<|end|><|assistant|>{short}"
    sent, read = microscope.truth("chat@1", begun), microscope.trace("chat@1", begun)["ids"]
    n_given, n_read = len(prompt_ids(tokenizer, [("user", question)])) - 1, len(read) - 1
    assert (sent["ids"], len(sent["positions"])) == (read, len(read))
    assert sent["floor"][:n_given] == [None] * n_given
    assert sent["floor"][n_given:] == pytest.approx(nats[n_given:n_read])
    assert sum(microscope.truth("chat@1", question)["positions"][-1]["p"]) == pytest.approx(1)

    ended = microscope.truth("chat@1", begun + "<|end|>")
    assert (sent["is_possible"], ended["is_possible"], ended["possible_length"]) == (True, False, len(begun))
    known = corpus.answers_to(question)
    truth = truth_of_answer(corpus, tokenizer, f"<|user|>{question}<|end|><|assistant|>{answer}<|end|>")
    assert sum(truth["floor"][n_given:]) == pytest.approx(-known.log_probability(answer))
    assert (truth["is_whole"], len(truth["skills"])) == (True, len(truth["ids"]) - 1)
    assert not microscope.truth("chat@1", f"{begun}<|end|><|user|>And then?")["known"]
    assert "asks for no fable" in microscope.truth("chat@1", "Who are you?")["why"]


def test_a_table_is_measured_once_for_a_checkpoint_and_kept_with_the_run(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"knocked_out": [len(calls)]}

    file = tmp_path / "parts.json"
    tables = [table_in_file(file, key, compute)["knocked_out"] for key in ("a 2", "b 2", "a 2", "b 2")]
    assert tables == [[1], [2], [1], [2]]
    for damaged in ("{", "[]", '{"a 2": 5}', '{"a 2": {}}'):
        file.write_text(damaged)
        assert table_in_file(file, "a 2", compute)["knocked_out"] == [len(calls)]
    assert len(calls) == 6
    assert table_in_file(tmp_path / "none" / "parts.json", "a 2", compute) == {"knocked_out": [7]}


def test_a_hero_is_swapped_for_one_who_keeps_the_story_possible():
    assert other_heroes("By a river lived Otto. Everyone knew")[1][0] == "Hazel"
    assert other_heroes("By a river lived Otto. He knew")[1][0] == "Bramble"
    assert "Milo" not in other_heroes("By a river lived Otto. He knew Milo")[1]
    assert other_heroes("By a river lived") == ("", [])
