"""Pairs are read or written: the same pair whoever asks, preferred as often as Bradley and Terry say."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from pellucid.corpora.corpus import Turn
from pellucid.data.batches import IGNORE_INDEX
from pellucid.data.conversations import write_conversations
from pellucid.data.token_file import TokenFile
from pellucid.errors import DataError
from pellucid.post_training import pairs as module
from pellucid.post_training.pairs import (
    Pair,
    PairWriter,
    in_new_order,
    pair_batch,
    pairs_of_update,
    pairs_that_fit,
    prompt_of,
    ranking_of,
)
from pellucid.tokenizer.train import train_byte_pairs
from tiny import CPU_FLOAT32, tiny_decoder

QUESTION, GOOD, BAD = "Who found it?", "The fox.", "The hen found it, or so they say."


@pytest.fixture(scope="module")
def tokenizer():
    return train_byte_pairs([QUESTION, GOOD, BAD], vocab_size=280, special_tokens=["<|endoftext|>"]).with_chat_tokens()


@pytest.fixture
def token_file(tokenizer, tmp_path):
    conversations = [
        (Turn("user", f"{i} {QUESTION}"), Turn("assistant", f"{answer} {i}"))
        for i in range(3)
        for answer in (GOOD, BAD)
    ]
    write_conversations(conversations, tokenizer, tmp_path / "train.bin")
    return TokenFile.open(tmp_path / "train.bin", tokenizer.vocab_size)


def test_pairs_come_from_two_conversations_with_the_same_prompt(tokenizer, token_file):
    pair = ranking_of(token_file, 1, 2)
    assert list(pair.prompt) == prompt_of(token_file, 2) == prompt_of(token_file, 3)
    assert pair.prompt[0] == tokenizer.end_of_text
    assert tokenizer.decode(pair.prompt) == f"1 {QUESTION}"
    for answer, text in zip(pair.answers, (f"{GOOD} 1", f"{BAD} 1"), strict=True):
        assert tokenizer.decode(answer) == text
        assert answer[-1] == tokenizer.control_id("<|end|>")


def test_pairs_that_do_not_fit_are_left_out(token_file, caplog):
    longest = int(np.diff(token_file.boundaries).max())
    assert pairs_that_fit(token_file, longest) == [0, 1, 2]
    assert caplog.messages == []
    with pytest.raises(DataError, match="no pair of the train split fits into model.context_length 9; use a model"):
        pairs_that_fit(token_file, 9)
    held_out = TokenFile("validation", np.zeros(20), np.array([0, 3, 6, 9, 19]))
    assert pairs_that_fit(held_out, 5) == [0]
    told = "1 of 2 pairs of the validation split are longer than model.context_length 5 and are left out"
    assert caplog.messages == [told]


def test_a_batch_has_the_answers_as_targets_and_their_last_tokens_as_inputs():
    pairs = [Pair([7, 1], [2, 3], [4]), Pair([7], [5], [6, 6, 6])]
    batch = pair_batch(pairs, lambda inputs_NT, targets_NT: inputs_NT.sum(dim=1).float())
    none = IGNORE_INDEX
    assert batch.inputs_PKT.tolist() == [[[7, 1, 2, 3], [7, 1, 4, 0]], [[7, 5, 0, 0], [7, 6, 6, 6]]]
    assert batch.targets_PKT.tolist() == [
        [[none, 2, 3, none], [none, 4, none, none]],
        [[5, none, none, none], [6, 6, 6, none]],
    ]
    assert batch.reference_PK.tolist() == [[13, 12], [12, 25]]
    assert pair_batch(pairs, None).reference_PK.tolist() == [[0, 0], [0, 0]]


def test_each_epoch_has_everything_once_in_an_order_of_its_own():
    nth = in_new_order([10, 20, 30, 40, 50], seed=0)
    epochs = [[nth(n) for n in range(first, first + 5)] for first in (0, 5, 10)]
    assert all(sorted(epoch) == [10, 20, 30, 40, 50] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert nth(3) == epochs[0][3]


@dataclass
class TinyJudge:
    reward: Callable
    n_before_fault: Callable = NotImplemented
    n_until_settled: Callable = NotImplemented


def writer(judge, noise, seed=0, **options):
    return PairWriter(
        model=tiny_decoder(),
        prompt=lambda n: [0, 1 + n % 3],
        judge=judge if isinstance(judge, TinyJudge) else TinyJudge(judge),
        precision=CPU_FLOAT32,
        stop_ids=(0,),
        max_new_tokens=4,
        noise=noise,
        seeds=(seed, 0),
        **options,
    )


def test_a_pair_depends_on_the_seed_and_its_number_alone():
    by_length = lambda prompt, answer: len(answer)  # noqa: E731
    together = writer(by_length, 1.0)(range(40))
    assert writer(by_length, 1.0)(range(30, 20, -1)) == together[30:20:-1]
    assert writer(by_length, 1.0, seed=1)(range(40)) != together
    for n, pair in enumerate(together):
        assert pair.prompt == [0, 1 + n % 3]
        for answer in (pair.chosen, pair.rejected):
            assert 0 not in answer[:-1]
            assert len(answer) == 4 or answer[-1] == 0


def test_without_noise_the_better_answer_is_chosen_and_ties_are_no_pairs():
    found = writer(lambda prompt, answer: sum(answer) > 33, 0.0)(range(60))
    pairs = [pair for pair in found if pair is not None]
    assert 10 < len(pairs) < 55
    assert all(sum(pair.chosen) > 33 >= sum(pair.rejected) for pair in pairs)


def test_a_second_answer_forks_off_the_first_one_where_it_is_told():
    by_last = lambda prompt, answer: float(answer[-1])  # noqa: E731
    in_the_middle = TinyJudge(by_last, n_before_fault=lambda prompt, answer: len(answer) // 2)
    pairs = writer(in_the_middle, 1.0, fork=True)(range(60))
    assert any(len(pair.chosen) > 3 and pair.chosen[:2] == pair.rejected[:2] for pair in pairs)
    for pair in pairs:
        n_shared = min(len(pair.chosen), len(pair.rejected)) // 2
        assert pair.chosen[:n_shared] == pair.rejected[:n_shared]
        assert all(len(answer) <= 4 and 0 not in answer[:-1] for answer in (pair.chosen, pair.rejected))
    assert any(pair.chosen != pair.rejected for pair in pairs)
    at_once = writer(TinyJudge(by_last, n_before_fault=lambda prompt, answer: 0), 1.0, fork=True)(range(20))
    assert at_once == writer(by_last, 1.0)(range(20)), "they share nothing"


@pytest.mark.parametrize("ends", ["each", "both"])
def test_answers_are_judged_as_a_whole_and_then_cut(ends):
    place = lambda prompt, answer: 1 + answer[0] % 3  # noqa: E731
    judge = TinyJudge(lambda prompt, answer: float(sum(answer)), n_until_settled=place)
    whole, cut = (writer(judge, 0.0, cut=cut)(range(40)) for cut in ("none", ends))
    for pair, cut_pair in zip(whole, cut, strict=True):
        end = place(None, pair.rejected)
        end_of_chosen = end if ends == "both" else place(None, pair.chosen)
        assert cut_pair == Pair(pair.prompt, pair.chosen[:end_of_chosen], pair.rejected[:end])
    assert any(len(pair.chosen) > len(after.chosen) for pair, after in zip(whole, cut, strict=True))


@pytest.mark.parametrize(("noise", "expected"), [(1.0, 0.731), (0.5, 0.881)])
def test_preferences_are_those_of_bradley_and_terry(noise, expected):
    """Rewards of 1 and 0: the better answer is chosen with σ(1 / noise); of equal ones, each is half of the time."""
    judge = lambda prompt, answer: float(answer[0] > 5)  # noqa: E731
    pairs = writer(judge, noise)(range(1500))
    rewards = [(judge(None, pair.chosen), judge(None, pair.rejected)) for pair in pairs]
    unequal = [chosen > rejected for chosen, rejected in rewards if chosen != rejected]
    assert np.mean(unequal) == pytest.approx(expected, abs=4 / np.sqrt(len(unequal)) / 2)
    ties = [pair.chosen < pair.rejected for pair in pairs if judge(None, pair.chosen) == judge(None, pair.rejected)]
    assert np.mean(ties) == pytest.approx(0.5, abs=4 / np.sqrt(len(ties)) / 2)


@pytest.mark.parametrize("rows", [slice(None), slice(2, 4)])
def test_pairs_are_written_together_with_the_same_others_wherever_a_run_begins(monkeypatch, rows):
    monkeypatch.setattr(module, "PAIRS_AT_ONCE", 24)
    asked = []

    def write(numbers):
        asked.append(numbers)
        return [Pair([n], [], []) for n in numbers]

    def from_step(first):
        get = pairs_of_update(write, batch_size=4, batches_per_update=2)
        return {i: [pair.prompt[0] for pair in get(i, rows)] for i in range(2 * first, 14)}

    whole = from_step(0)
    assert whole == {i: [*range(4 * i, 4 * i + 4)][rows] for i in range(14)}
    blocks, asked[:] = [*asked], []
    assert from_step(4).items() <= whole.items()
    assert all(block in blocks for block in asked)


def test_padding_and_other_rows_do_not_change_what_the_reference_says_of_an_answer():
    from pellucid.post_training.build import answer_log_probabilities

    decoder, alone = tiny_decoder(), Pair([1, 2], [3, 4, 5], [6])
    log_p = lambda inputs_NT, targets_NT: answer_log_probabilities(decoder, CPU_FLOAT32, inputs_NT, targets_NT)  # noqa: E731
    reference_PK = pair_batch([alone, Pair([1], [2, 3, 4, 5, 6], [7])], log_p).reference_PK
    torch.testing.assert_close(reference_PK[:1], pair_batch([alone], log_p).reference_PK)
    with torch.no_grad():
        log_p_TV = decoder(torch.tensor([[1, 2, 3, 4]]))[0].log_softmax(dim=-1)
    assert reference_PK[0, 0].item() == pytest.approx(
        sum(log_p_TV[t, id_].item() for t, id_ in ((1, 3), (2, 4), (3, 5)))
    )
