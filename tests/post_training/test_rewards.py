import pytest
import torch

from pellucid.config.data import BytePairConfig
from pellucid.config.model import DecoderConfig
from pellucid.corpora.instructions import InstructionsCorpus, Verdict, judge
from pellucid.data.batches import IGNORE_INDEX
from pellucid.model.build import build_model
from pellucid.post_training.asking import Instructions
from pellucid.post_training.rewards import GrammarJudge, LearnedReward, by_verifier, rows_of
from pellucid.tokenizer import Tokenizer
from pellucid.tokenizer.build import train_tokenizer
from pellucid.tokenizer.chat import prompt_ids


@pytest.fixture(scope="module")
def corpus() -> InstructionsCorpus:
    return InstructionsCorpus(8, 3, 0, 0.5)


@pytest.fixture(scope="module")
def tokenizer(corpus: InstructionsCorpus) -> Tokenizer:
    texts = [piece.text for piece in corpus.pieces("train")]
    return train_tokenizer(BytePairConfig(type="bpe", vocab_size=300), texts, []).with_chat_tokens()


def test_a_whole_fable_as_asked_is_worth_one_point_and_each_half_of_it_half(corpus, tokenizer):
    instruction, answer = next(corpus.examples("train"))
    end = tokenizer.control_id("<|end|>")
    others = [
        each for each, _ in corpus.examples("validation") if judge(corpus.fables, each.task, answer).obeys is False
    ]

    def worth(asked, ids):
        return by_verifier([], [], [Instructions(corpus, tokenizer).judge(asked, ids)]).item()

    ids = tokenizer.encode(answer)
    assert worth(instruction, [*ids, end]) == 1.0
    assert worth(others[0], [*ids, end]) == 0.5
    assert worth(instruction, [*ids[:-3], end]) == 0.5  # its last words are missing
    assert worth(others[0], [end]) == 0.0


def test_answers_are_forked_before_their_first_fault_and_cut_after_their_last(corpus, tokenizer):
    instruction, answer = next(corpus.examples("train"))
    prompt, end = prompt_ids(tokenizer, [("user", instruction.text)]), tokenizer.control_id("<|end|>")
    ids, grammar = [*tokenizer.encode(answer), end], GrammarJudge(corpus, tokenizer)
    assert grammar.n_until_settled(prompt, ids) == len(ids), "until its end it could still break"
    assert grammar.n_before_fault(prompt, ids) == len(ids) // 2
    for place in (3, len(ids) // 2, len(ids) - 2):
        broken = [*ids[:place], tokenizer.encode("@")[0], *ids[place + 1 :]]
        assert grammar.n_before_fault(prompt, broken) == place
        assert grammar.n_until_settled(prompt, broken) == place + 1
    other = next(each for each, _ in corpus.examples("validation") if not judge(corpus.fables, each.task, answer).obeys)
    prompt = prompt_ids(tokenizer, [("user", other.text)])
    fork = grammar.n_before_fault(prompt, ids)
    assert fork < len(ids) // 2, "its beginning says that it is about something else"
    assert grammar.n_until_settled(prompt, ids) == len(ids), "it is a fable all the same"


def test_rows_hold_prompt_and_answer_and_the_answer_as_targets():
    inputs_NT, targets_NT = rows_of([[1, 2], [3]], [[4, 5, 6], [7]])
    no = IGNORE_INDEX
    assert inputs_NT.tolist() == [[1, 2, 4, 5, 6], [3, 7, 0, 0, 0]]
    assert targets_NT.tolist() == [[no, 4, 5, 6, no], [7, no, no, no, no]]


def test_a_reward_model_is_read_at_the_last_token_whatever_the_other_rows():
    torch.manual_seed(0)
    model = build_model(
        DecoderConfig(context_length=16, d_model=8, n_layers=1, n_heads=2), 11, learns_scores=True
    ).eval()
    torch.nn.init.normal_(model.scalar_head.weight)
    reward = LearnedReward(model.scores)
    prompts, answers = [[1, 2], [3], [4, 5, 6]], [[7, 8, 9, 1], [2], [3, 4]]
    with torch.no_grad():
        rows = [torch.tensor([prompt + answer]) for prompt, answer in zip(prompts, answers, strict=True)]
        expected = torch.stack([model.scalar_head(model.hidden(row))[0, -1, 0] for row in rows])
    unread = [Verdict(False, None, None, False)] * 3
    torch.testing.assert_close(reward(prompts, answers, unread), expected, atol=1e-5, rtol=0)
