"""Rollouts do not depend on how an update is cut up, and can be taken back from a checkpoint."""

import math
import statistics
from functools import partial

import pytest
import torch

from pellucid.config.data import BytePairConfig
from pellucid.config.model import DecoderConfig
from pellucid.corpora.instructions import InstructionsCorpus
from pellucid.data.batches import IGNORE_INDEX
from pellucid.errors import CheckpointError
from pellucid.model.build import build_model
from pellucid.objectives.policy import entropy, grpo, log_probabilities, ppo
from pellucid.post_training.asking import Instructions
from pellucid.post_training.credit import (
    Parts,
    credit_by_group,
    credit_by_settling,
    credit_by_values,
    explained_variance,
    lost_at,
)
from pellucid.post_training.rewards import by_verifier
from pellucid.post_training.rollouts import Rollouts, as_tensors, reporting_verdicts
from pellucid.runtime.distributed import ALONE
from pellucid.runtime.precision import Precision
from pellucid.tokenizer.build import train_tokenizer

CPU = Precision(torch.device("cpu"), torch.float32)
CORPUS = InstructionsCorpus(20, 3, 0, 0.25)
TOKENIZER = train_tokenizer(
    BytePairConfig(type="bpe", vocab_size=400), [piece.text for piece in CORPUS.pieces("train")], []
).with_chat_tokens()
ALL = slice(None)


def drawn_decoder(seed):
    config = DecoderConfig(context_length=80, d_model=16, n_layers=1, n_heads=2)
    torch.manual_seed(seed)
    model = build_model(config, TOKENIZER.vocab_size, learns_scores=True)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def by_letters(_prompts, answers, _verdicts):
    """Answers of noise are all worth nothing to the grammar; here, as much as their tokens say."""
    return torch.tensor([sum(ids) % 7 / 7 for ids in answers])


def make(**changes):
    settings = {
        "model": drawn_decoder(1),
        "reference": drawn_decoder(2),
        "asking": Instructions(CORPUS, TOKENIZER),
        "tokenizer": TOKENIZER,
        "reward": by_letters,
        "credit": partial(credit_by_group, beta=0.0),
        "precision": CPU,
        "world": ALONE,
        "seed": 0,
        "batch_size": 4,
        "batches_per_update": 1,
        "updates_per_rollout": 1,
        "group_size": 3,
        "max_new_tokens": 10,
        "temperature": 1.0,
        "beta": 0.1,
    }
    return Rollouts(**{**settings, **changes})


@pytest.fixture(scope="module")
def answers():
    return make().batch(0, ALL).answers


def tokens_of(batch):
    """Prompt and answer of each row, without padding."""
    inputs_NT, targets_NT = batch.answers.inputs_PGT.flatten(0, 1), batch.answers.targets_PGT.flatten(0, 1)
    ends = [int((row != IGNORE_INDEX).nonzero().max()) for row in targets_NT]
    return [[*inputs_NT[i, : end + 1].tolist(), int(targets_NT[i, end])] for i, end in enumerate(ends)]


def test_answers_are_a_function_of_seed_and_step_however_an_update_is_cut_up():
    whole = tokens_of(make().batch(3, ALL))
    in_two = make(batch_size=2, batches_per_update=2)
    assert tokens_of(in_two.batch(6, ALL)) + tokens_of(in_two.batch(7, ALL)) == whole
    by_ranks = make()
    assert tokens_of(by_ranks.batch(3, slice(0, 1))) + tokens_of(by_ranks.batch(3, slice(1, 4))) == whole
    assert tokens_of(make().batch(4, ALL)) != whole
    assert tokens_of(make(seed=1).batch(3, ALL)) != whole
    assert len({tuple(row) for row in whole}) == len(whole), "the answers of a group should differ"


def test_what_is_asked_are_training_instructions_each_with_its_group():
    rows = tokens_of(make().batch(0, ALL))
    user, end, assistant = (TOKENIZER.control_id(f"<|{name}|>") for name in ("user", "end", "assistant"))
    asked = [TOKENIZER.decode(row[row.index(user) + 1 : row.index(end)]) for row in rows]
    assert [asked[i] == asked[i - 1] for i in range(1, 12) if i % 3] == [True] * 8
    assert len(set(asked)) > 1
    assert all(CORPUS.instruction_of(text).is_seen_wording for text in asked)
    assert all(row[row.index(end) + 1] == assistant for row in rows)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_the_trainer_and_of_the_reference(temperature):
    rollouts = make(temperature=temperature)
    answers = rollouts.batch(0, ALL).answers
    for model, found_PGT in ((rollouts.model, answers.old_PGT), (rollouts.reference, answers.reference_PGT)):
        with torch.no_grad():
            logits_NTV = model(answers.inputs_PGT.flatten(0, 1))
        expected = log_probabilities(logits_NTV, answers.targets_PGT.flatten(0, 1), temperature)
        torch.testing.assert_close(found_PGT.flatten(0, 1), expected, atol=1e-4, rtol=0)
    assert (answers.old_PGT - answers.reference_PGT).abs().max() > 0.1


def test_advantages_compare_an_answer_with_its_group(answers):
    rewards_PG = answers.rewards_PG
    expected = (rewards_PG - rewards_PG.mean(1, True)) / (rewards_PG.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(answers.advantages_PGT, expected[..., None].expand_as(answers.old_PGT))
    assert rewards_PG.std() > 0.1


def test_advantages_that_are_not_divided_by_their_spread_are_differences(answers):
    rewards_PG = answers.rewards_PG
    parts = drawn_parts(answers)
    answers = credit_by_group(answers, parts, beta=0.0, by_spread=False)
    expected_PG = rewards_PG - rewards_PG.mean(1, True)
    torch.testing.assert_close(answers.advantages_PGT, expected_PG[..., None].expand_as(answers.old_PGT))
    # With decay 1, the first token gets all that an answer is better by, wherever it was settled.
    by_settling = credit_by_settling(answers, parts, decay=1.0, by_spread=False).advantages_PGT
    rewards_PG = parts.rewards_PG2.sum(dim=-1)
    places = (answers.targets_PGT != IGNORE_INDEX).float().argmax(dim=-1, keepdim=True)
    torch.testing.assert_close(by_settling.gather(-1, places)[..., 0], rewards_PG - rewards_PG.mean(1, True))


def test_where_the_divergence_is_in_the_reward_it_is_taken_off():
    answers = make(credit=partial(credit_by_group, beta=0.3)).batch(0, ALL).answers
    rewards_PG = answers.rewards_PG - 0.3 * (answers.old_PGT - answers.reference_PGT).sum(dim=-1)
    expected = (rewards_PG - rewards_PG.mean(1, True)) / (rewards_PG.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(answers.advantages_PGT[..., 0], expected)


def test_equal_rewards_teach_nothing_and_break_nothing():
    rollouts = make(reward=by_verifier)  # noise is worth nothing
    batch = rollouts.batch(0, ALL)
    assert batch.answers.rewards_PG.count_nonzero() == 0
    loss = reporting_verdicts(partial(grpo, beta=0.0, clip=0.2))(rollouts.model, batch)
    loss.sum.backward()
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in rollouts.model.parameters())
    assert loss.figures["whole"] == loss.figures["obeys"] == 0


def test_values_share_out_the_reward_less_the_price_of_divergence():
    model = drawn_decoder(1)
    credit = partial(
        credit_by_values, logits_and_values=model.logits_and_scores, beta=0.2, discount=1.0, gae_lambda=1.0
    )
    batch = make(model=model, credit=credit, group_size=1).batch(0, ALL)
    answers = batch.answers
    costs_P = 0.2 * (answers.old_PGT - answers.reference_PGT).sum(dim=-1)[:, 0]
    for row, target_T in enumerate(answers.targets_PGT[:, 0]):
        first = int((target_T != IGNORE_INDEX).nonzero().min())
        # lambda and discount 1: before the first token, the return is all that is to come
        expected = float(answers.rewards_PG[row, 0] - costs_P[row])
        assert float(answers.returns_PGT[row, 0, first]) == pytest.approx(expected, abs=1e-4)
    loss = ppo(model.logits_and_scores, answers, clip=0.2, value_weight=0.5)
    loss.sum.backward()
    assert model.scalar_head.weight.grad.abs().max() > 0


def drawn_parts(answers):
    """Two parts of a reward for each answer, each won or lost at one of its tokens."""
    generator = torch.Generator().manual_seed(0)
    rewards_PG2 = torch.randint(2, (*answers.rewards_PG.shape, 2), generator=generator) / 2
    is_answer_PGT = (answers.targets_PGT != IGNORE_INDEX).float()
    places = torch.multinomial(is_answer_PGT.flatten(0, 1), 2, generator=generator)
    return Parts(rewards_PG2, places.view(rewards_PG2.shape))


def test_what_an_answer_misses_is_taken_off_where_it_was_lost(answers):
    parts = drawn_parts(answers)
    found_PGT = lost_at(parts, answers.targets_PGT.size(-1))
    torch.testing.assert_close(1 - found_PGT.sum(dim=-1), parts.rewards_PG2.sum(dim=-1))
    for losses_T, rewards_2, settled_2 in zip(
        found_PGT.flatten(0, 1), parts.rewards_PG2.flatten(0, 1), parts.settled_PG2.flatten(0, 1), strict=True
    ):
        assert set(losses_T.nonzero()[:, 0].tolist()) == set(settled_2[rewards_2 == 0].tolist())


def test_a_reward_that_is_lost_on_the_way_has_returns_that_are_lower_by_one_before_all_is_settled(answers):
    """A constant, in which the optimum does not differ; and where nothing more can be lost, there is none left."""
    parts = drawn_parts(answers)
    answers = answers._replace(rewards_PG=parts.rewards_PG2.sum(dim=-1))
    settings = {
        "logits_and_values": drawn_decoder(1).logits_and_scores,
        "beta": 0.2,
        "discount": 1.0,
        "gae_lambda": 1.0,
    }
    at_end, settled = (
        credit_by_values(answers, parts, **settings, reward_at=place).returns_PGT for place in ("end", "settled")
    )
    is_answer_PGT = answers.targets_PGT != IGNORE_INDEX
    places_T = torch.arange(is_answer_PGT.size(-1))
    before_PGT = is_answer_PGT & (places_T <= parts.settled_PG2.amin(dim=-1, keepdim=True))
    after_PGT = is_answer_PGT & (places_T > parts.settled_PG2.amax(dim=-1, keepdim=True))
    torch.testing.assert_close(settled[before_PGT], at_end[before_PGT] - 1)
    rewards_PGT = answers.rewards_PG[..., None].expand(is_answer_PGT.shape)
    torch.testing.assert_close(settled[after_PGT], (at_end - rewards_PGT)[after_PGT])


def test_explained_variance_is_one_for_values_that_foresee_all_and_nothing_for_constant_ones():
    values = drawn_decoder(1).logits_and_scores
    credit = partial(credit_by_values, logits_and_values=values, beta=0.2, discount=1.0, gae_lambda=1.0)
    answers = make(credit=credit, group_size=1).batch(0, ALL).answers
    foreseen = answers._replace(advantages_PGT=torch.zeros_like(answers.returns_PGT))
    unforeseen = answers._replace(advantages_PGT=answers.returns_PGT - 3.0)
    assert explained_variance(foreseen).item() == 1
    assert explained_variance(unforeseen).item() == pytest.approx(0, abs=1e-5)
    assert explained_variance(answers).item() < 1


def test_the_same_answers_serve_as_many_updates_as_asked():
    rollouts = make(updates_per_rollout=2)
    first = rollouts.batch(0, ALL)
    with torch.no_grad():
        rollouts.model.embeddings.embedding_VD.mul_(1.5)
    assert rollouts.batch(1, ALL) is first
    assert tokens_of(rollouts.batch(2, ALL)) != tokens_of(first)


@pytest.mark.parametrize("parts", [[ALL], [slice(0, 2), slice(2, 4)]], ids=["whole", "parts"])
def test_what_is_kept_brings_the_same_batches_back_bit_for_bit(parts):
    writer, reader = make(updates_per_rollout=3), make(updates_per_rollout=3, model=drawn_decoder(9))
    written = [writer.batch(3, rows) for rows in parts]
    saved = writer.state()
    reader.restore(saved)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in reader.state().items())
    for rows, batch in zip(parts, written, strict=True):
        found = as_tensors(reader.batch(4, rows))
        assert all(torch.equal(tensor, found[name]) for name, tensor in as_tensors(batch).items())
    assert all(torch.equal(tensor, saved[name]) for name, tensor in reader.state().items() if name != "next_step")
    reader.batch(5, ALL)
    assert reader.state() == {}, "the next update begins with new answers"


def test_answers_of_another_shape_are_refused():
    writer = make(updates_per_rollout=2)
    writer.batch(0, ALL)
    with pytest.raises(CheckpointError, match="they are not 2 to each of 4 prompts"):
        make(updates_per_rollout=2, group_size=2).restore(writer.state())


def test_the_evaluation_is_of_fixed_draws_and_counts_reward_and_divergence():
    rollouts = make()
    found = rollouts.evaluate(rollouts.model, 30)
    assert found == rollouts.evaluate(rollouts.model, 30)
    assert found.n_answers == 3
    assert rollouts.evaluate(rollouts.model, None).n_answers == len(rollouts.asking.held_out) == 5
    assert found.loss == pytest.approx(-(found.reward - 0.1 * found.kl))
    assert found.kl > 0
    assert rollouts.evaluate(rollouts.reference, 30).kl == pytest.approx(0, abs=1e-4)
    assert found.to_row()["val_loss"] == found.loss
    assert "0.0% whole" in found.brief()
    assert found.to_json()["n_answers"] == 3
    assert "3 answers to held-out instructions" in found.table()


def test_samples_show_what_was_asked_and_the_verdict():
    (text,) = make().samples(drawn_decoder(1), 1)
    question, *_, verdict = text.split("\n\n")
    assert question.strip("*") == next(CORPUS.examples("validation"))[0].text
    assert verdict == "(no whole fable, not as asked)"


def test_the_entropy_of_a_uniform_policy_is_reported_as_that():
    model = drawn_decoder(1)
    with torch.no_grad():
        model.embeddings.embedding_VD.zero_()
    batch = make(model=model).batch(0, ALL)
    figures = reporting_verdicts(partial(grpo, beta=0.1, clip=0.2))(model, batch).figures
    assert float(figures["entropy"]) / 12 == pytest.approx(math.log(TOKENIZER.vocab_size), rel=1e-5)
    assert entropy(torch.zeros(1, 1, 7).log_softmax(dim=-1)).item() == pytest.approx(math.log(7))


def test_credit_by_settling_is_a_loop_over_the_halves_of_each_answer(answers):
    P, G, T = answers.targets_PGT.shape
    generator = torch.Generator().manual_seed(0)
    rewards_PG2 = torch.randint(2, (P, G, 2), generator=generator) / 2
    settled_PG2 = torch.randint(T, (P, G, 2), generator=generator)
    found_PGT = credit_by_settling(answers, Parts(rewards_PG2, settled_PG2), decay=0.9).advantages_PGT
    for p in range(P):
        spread = math.sqrt(sum(statistics.variance(rewards_PG2[p, :, half].tolist()) for half in (0, 1))) + 1e-4
        for g in range(G):
            for t in range(T):
                expected = sum(
                    float(rewards_PG2[p, g, half] - rewards_PG2[p, :, half].mean()) / spread * 0.9 ** (place - t)
                    for half, place in enumerate(settled_PG2[p, g].tolist())
                    if t <= place
                )
                is_answer = answers.targets_PGT[p, g, t] != IGNORE_INDEX
                assert float(found_PGT[p, g, t]) == pytest.approx(expected if is_answer else 0.0, abs=1e-5)
