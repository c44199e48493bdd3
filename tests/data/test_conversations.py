import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pellucid.corpora.corpus import Turn
from pellucid.data.batches import IGNORE_INDEX, Batches, evaluation_batches
from pellucid.data.conversations import write_conversations
from pellucid.data.token_file import TokenFile
from pellucid.model.build import build_model
from pellucid.objectives.next_token import next_token
from pellucid.tokenizer.tokenizer import ASSISTANT, END_OF_TURN, USER
from pellucid.tokenizer.train import train_byte_pairs
from tiny import decoder_config, gradients, tiny_trainer

TOKENIZER = train_byte_pairs(
    ["who is there? a fox. "], vocab_size=270, special_tokens=["<|endoftext|>"]
).with_chat_tokens()
EOT, ASKED, ANSWERED, ENDED = TOKENIZER.end_of_text, *map(TOKENIZER.control_id, (USER, ASSISTANT, END_OF_TURN))
WORDS = st.text("who there fox é<|end|>", max_size=6)
ANSWERED_QUESTIONS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3)
CONVERSATIONS = st.lists(ANSWERED_QUESTIONS, min_size=1, max_size=4)


def written(conversations, folder) -> tuple[TokenFile, tuple[int, int]]:
    turns = [[Turn(*turn) for q, a in each for turn in (("user", q), ("assistant", a))] for each in conversations]
    counts = write_conversations(turns, TOKENIZER, folder / "train.bin")
    return TokenFile.open(folder / "train.bin", TOKENIZER.vocab_size), counts


@given(CONVERSATIONS)
def test_a_conversation_is_a_document_in_the_template_of_which_answers_and_their_ends_are_learned(
    tmp_path_factory, conversations
):
    expected: list[tuple[int, bool]] = [(EOT, False)]
    for conversation in conversations:
        for question, answer in conversation:
            expected += [(id_, False) for id_ in (ASKED, *TOKENIZER.encode(question), ENDED, ANSWERED)]
            expected += [(id_, True) for id_ in (*TOKENIZER.encode(answer), ENDED)]
        expected.append((EOT, False))
    token_file, (n_bytes, n_characters) = written(conversations, tmp_path_factory.mktemp("chat"))
    assert token_file.is_target is not None
    assert list(zip(token_file.tokens.tolist(), token_file.is_target.tolist(), strict=True)) == expected
    assert token_file.n_losses == sum(is_target for _, is_target in expected)
    assert token_file.boundaries.tolist() == [i for i, (id_, _) in enumerate(expected) if id_ == EOT]
    answers = "".join(answer for conversation in conversations for _, answer in conversation)
    assert (n_bytes, n_characters) == (len(answers.encode()), len(answers))


@given(CONVERSATIONS, st.sampled_from(["contiguous", "documents"]), st.integers(4, 12))
def test_an_epoch_learns_every_token_of_every_answer_once_and_none_of_a_question(
    tmp_path_factory, conversations, packing, context_length
):
    token_file, _ = written(conversations, tmp_path_factory.mktemp("chat"))
    if token_file.n_targets < context_length:
        return
    batches = Batches(token_file, context_length, 1, seed=0, packing=packing)
    seen = [batches.batch(step).targets_BT for step in range(len(batches.rows))]
    ids = np.concatenate([targets_BT[targets_BT != IGNORE_INDEX].numpy() for targets_BT in seen])
    assert sorted(ids.tolist()) == sorted(token_file.tokens[token_file.is_target].tolist())
    n_losses = sum(
        batch.n_losses for batch, _ in evaluation_batches(token_file, context_length, 2, from_document_starts=True)
    )
    assert n_losses == token_file.n_losses


def test_the_loss_of_an_update_is_the_mean_over_all_answers_of_its_micro_batches(tmp_path):
    """Equation P1: Σ masked NLL / Σ mask over the whole update, not a mean of means."""
    conversations = [[("who is there?" * (i % 3), "fox " * (1 + i * i))] for i in range(6)]
    token_file, _ = written(conversations, tmp_path)
    decoder = build_model(decoder_config(context_length=32), TOKENIZER.vocab_size)
    batches = Batches(token_file, 32, 2, seed=0, packing="documents")
    parts = [batches.batch(i) for i in range(3)]
    counts = [part.n_losses for part in parts]
    assert len(set(counts)) > 1
    nats = [
        F.cross_entropy(decoder(part.inputs_BT).mT, part.targets_BT, ignore_index=IGNORE_INDEX, reduction="sum")
        for part in parts
    ]
    expected = sum(nats) / sum(counts)
    expected.backward()
    norm = torch.cat([gradient.flatten() for gradient in gradients(decoder).values()]).norm().item()
    for part, each in zip(parts, nats, strict=True):
        assert next_token(decoder, part).sum.item() == pytest.approx(each.item(), rel=1e-6)
    decoder.zero_grad()
    trainer = tiny_trainer(decoder, get_batch=batches.batch, gradient_accumulation_steps=3)
    update = trainer.update()
    assert (update.loss, update.gradient_norm) == pytest.approx((expected.item(), norm), rel=1e-5)
