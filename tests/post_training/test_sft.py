"""Supervised fine-tuning from end to end: a tiny run, a file of conversations, and a model that answers as in them."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pellucid as api
from pellucid import failpoints
from pellucid.corpora.corpus import Turn
from pellucid.tokenizer.chat import prompt_ids
from pellucid.tokenizer.tokenizer import CHAT_TOKENS
from pellucid.trained import load_trained_model
from pellucid.training.metrics import read_rows
from tiny_run import TINY_RUN, VERSES, assert_one_error_line

# Each fills a row by itself: the model can learn from nothing but the question which answer is wanted.
ANSWERS = {
    "Who found it?": "The fox found the key.",
    "Who lost it?": "The crow lost the corn!",
    "Who said it?": "The hen: I said the\nhen.",
    "Why?": "I found the corn: the fox said.",
}
FINE_TUNING = """\
name: chat
start_from: base
corpus: {type: conversations, files: [chats.jsonl], validation_files: [same.jsonl]}
data: {packing: documents}
model: {dropout: 0.0}
objective: {type: sft}
optimizer: {type: adamw, lr: 2e-2}
schedule: {type: cosine}
train: {steps: 150, batch_size: 4, precision: fp32, device: cpu, log_every_steps: 1, processes: 1}
evaluation: {every_steps: 50}
sample: {every_steps: 150, n_samples: 1, max_new_tokens: 4}
checkpoint: {every_steps: 50}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a run `base` and a run `chat` that was fine-tuned from it."""
    folder = tmp_path_factory.mktemp("sft")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "corpus.txt").write_text(VERSES)
        (folder / "tiny.yaml").write_text(TINY_RUN)
        records = [{"prompt": question, "answer": answer} for question, answer in ANSWERS.items()]
        for file in ("chats.jsonl", "same.jsonl"):
            (folder / file).write_text("\n".join(map(json.dumps, records)))
        (folder / "sft.yaml").write_text(FINE_TUNING)
        api.train("tiny.yaml", "base", overrides=["model.activation=swiglu", "model.norm=rms_norm"])
        api.train("sft.yaml", "chat")
    return folder


@pytest.fixture
def place(trained: Path, workplace: Path) -> Path:
    shutil.copytree(trained, workplace, dirs_exist_ok=True)
    return workplace


def test_it_answers_as_it_was_trained_and_ends_there(place: Path, pellucid):
    prompts = [word for question in ANSWERS for word in ("--prompt", question)]
    for question, answer in ANSWERS.items():
        told = json.loads(pellucid("chat", "chat", "--prompt", question, "--greedy", "--json").stdout)
        assert told["turns"] == [{"role": "user", "text": question}, {"role": "assistant", "text": answer}]
        assert told["finish_reason"] == "end_of_text"
    assert pellucid("chat", "chat", *prompts, "--greedy").exit_code == 0


def test_the_new_tokens_come_after_those_of_the_base_and_the_others_keep_their_ids(place: Path):
    base, chat = (load_trained_model(place / run) for run in ("base/step-00000020", "chat/step-00000150"))
    assert chat.tokenizer.vocab_size == base.tokenizer.vocab_size + len(CHAT_TOKENS)
    assert chat.model.vocab_size == chat.tokenizer.vocab_size
    assert chat.tokenizer.encode(VERSES) == base.tokenizer.encode(VERSES)


def test_text_that_it_continues_without_a_turn_has_no_control_token(place: Path, pellucid):
    tokenizer = load_trained_model(place / "chat/step-00000150").tokenizer
    result = pellucid("generate", "chat", "--num-samples", 20, "--max-new-tokens", 20, "--seed", 0, "--json")
    samples = json.loads(result.stdout)["samples"]
    assert "end_of_text" in {sample["finish_reason"] for sample in samples}
    assert not any(token in sample["completion"] for sample in samples for token in CHAT_TOKENS)
    assert set(tokenizer.control_ids) - set(tokenizer.stop_ids)


def test_its_loss_is_that_of_the_answers_alone(place: Path, pellucid):
    evaluation = json.loads(pellucid("evaluate", "chat", "--json").stdout)
    run = api.load("chat")
    n_targets = sum(len(run.tokenizer.encode(answer)) + 1 for answer in ANSWERS.values())
    assert evaluation["tokens"] == n_targets
    assert evaluation["loss_nats_per_token"] < 0.05


def test_it_resumes_exactly_with_the_data_it_has_even_when_its_base_is_gone(
    place: Path, pellucid, monkeypatch: pytest.MonkeyPatch
):
    whole = place / "chat"
    prepared = sorted(path.name for path in (place / "data").iterdir())

    def stop(name: str) -> None:
        if name == "update" and len(read_rows(place / "halved/metrics.jsonl")) >= 70:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reached", stop)
        with pytest.raises(KeyboardInterrupt):
            api.train("sft.yaml", "halved")
    shutil.rmtree(place / "base")
    resumed = pellucid("train", "halved/config.yaml", "--run-dir", "halved", "--resume")
    assert resumed.exit_code == 0, resumed
    first, second = (load_file(run / "step-00000150/model.safetensors") for run in (whole, place / "halved"))
    assert all(torch.equal(first[name], second[name]) for name in first)
    losses = [[row["train_loss"] for row in read_rows(run / "metrics.jsonl")] for run in (whole, place / "halved")]
    assert losses[0] == losses[1]
    assert sorted(path.name for path in (place / "data").iterdir()) == prepared, "the tokens were there already"


def test_another_vocabulary_is_refused_in_one_line(place: Path, pellucid):
    result = pellucid("train", "sft.yaml", "tokenizer={type: bpe, vocab_size: 280}", "--run-dir", "other")
    assert_one_error_line(result, 2, "tokenizer: this vocabulary (", " tokens) is not that of base (300); leave out")


def test_other_programs_say_it_with_the_same_tokens_and_it_comes_back_as_a_run_that_talks(place: Path, pellucid):
    transformers = pytest.importorskip("transformers")
    run = api.load("chat")
    run.export("exported")
    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    turns = [Turn("user", "Who found it?"), Turn("assistant", "The fox.\n"), Turn("user", " Why? {{ 1 }} é")]
    for n in (1, 3):
        messages = [{"role": turn.role, "content": turn.text} for turn in turns[:n]]
        options = {"add_generation_prompt": True, "return_dict": False}
        assert tokenizer.apply_chat_template(messages, **options) == prompt_ids(run.tokenizer, turns[:n])
    with_system = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}]
    ids = tokenizer.apply_chat_template(with_system, add_generation_prompt=True, return_dict=False)
    assert ids == prompt_ids(run.tokenizer, [Turn("user", "Be kind.\n\nWhy?")])
    write = transformers.pipeline("text-generation", model="exported", device="cpu")
    [theirs] = write([{"role": "user", "content": "Why?"}], max_new_tokens=9, do_sample=False)
    assert theirs["generated_text"][-1] == {"role": "assistant", "content": ANSWERS["Why?"]}
    back = api.import_model("exported", "back")
    assert back.tokenizer.to_json() == run.tokenizer.to_json()
    assert back.chat(temperature=0).ask("Why?") == ANSWERS["Why?"]


def test_the_config_of_the_data_page_makes_a_run_that_answers(place: Path, pellucid):
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    section = page.partition("### A run that answers")[2]
    Path("page.yaml").write_text(section.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    small = ("train.steps=20", "train.device=cpu", "corpus.validation_fraction=0.5", "sample.max_new_tokens=4")
    done = pellucid("train", "page.yaml", "start_from=base", *small)
    assert done.exit_code == 0, done
    assert pellucid("chat", "checkpoints/chat", "--prompt", "Why?").exit_code == 0


def test_a_model_from_elsewhere_learns_to_talk(place: Path, pellucid):
    api.load("base").export("exported")
    api.import_model("exported", "imported")
    for start in ("imported", "chat"):  # which has its control tokens already
        again = (f"start_from={start}", "train.steps=1", "--run-dir", f"from-{start}")
        done = pellucid("train", "sft.yaml", *again)
        assert done.exit_code == 0, done
        assert api.load(f"from-{start}").tokenizer.vocab_size == 303


def test_a_base_that_never_learned_to_answer_is_pointed_out_before_it_waits_for_rewards(place: Path, pellucid):
    objective = "objective={type: grpo, group_size: 2, max_new_tokens: 2}"
    changes = ("corpus={type: instructions, size: 20, world_size: 3}", "model.context_length=256", "train.steps=1")
    said = pellucid("train", "sft.yaml", objective, *changes, "--run-dir", "rewarded").stderr
    assert "start_from: base was not trained on conversations" in said
    assert "fine-tune it first: `pellucid train instructions_sft`" in said
