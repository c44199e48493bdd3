"""Checks of lesson 7: each has the name of its exercise, and answers with a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from types import ModuleType
from typing import Any

import numpy as np

import lesson_01 as tape
from pellucid.course.checks import Wrong, draws, expect

# Two documents over the words 1 to 4; 0 is the END. "1 2" comes three times, and no document has "3 2".
DOCUMENTS = [[1, 2, 1, 2, 3], [2, 4, 1, 2]]


def count_pairs(lesson: ModuleType) -> None:
    counts = _pairs(DOCUMENTS, 6)
    inner = counts.copy()
    inner[0] = inner[:, 0] = 0
    across = inner.copy()
    across[3, 2] += 1
    once = np.minimum(counts, 1)
    once_each = once.copy()  # per document
    once_each[1, 2] = 2
    two_ends = counts.copy()
    two_ends[0, 0] = 1
    only_once = ("1, 2 comes three times, but you have {}: `+=` with a list of places adds only once to each place, "
                 "however often it is in the list")  # fmt: skip
    only_end, only_begin = inner.copy(), inner.copy()
    only_end[:, 0], only_begin[0] = counts[:, 0], counts[0]
    glued = across.copy()
    glued[0, 1] = glued[2, 0] = 1
    a_missing_end = ("the texts have no {}: nothing says where a text {}; an END stands before the first word of each "
                     "document, and after its last one")  # fmt: skip
    in_a_row = ("you count the pair 3, 2, which no document has: 3 ends the first one and 2 begins the second; nobody "
                "wrote them side by side")  # fmt: skip
    given = deepcopy(DOCUMENTS)
    answer = lesson.count_pairs(given, 6)
    if given != DOCUMENTS:
        raise Wrong(f"your function has changed the documents that it was given: the first one is now {given[0]}, and "
                    "whoever counts next finds pairs that nobody wrote; make a new list")  # fmt: skip
    if isinstance(answer, (list, tuple)):
        raise Wrong(f"your table is a {type(answer).__name__}; the page asks for `counts == 0` at every place, so "
                    "make an array")  # fmt: skip
    expect(
        answer,
        counts,
        "the pairs of [1, 2, 1, 2, 3] and [2, 4, 1, 2]",
        [
            (counts.T, "your table lies on its side: at [1, 2] belongs how often 2 follows 1, which is 3 times"),
            (across, in_a_row),
            (glued, in_a_row),
            (inner, a_missing_end.format("END", "begins or ends")),
            (only_end, a_missing_end.format("END before them", "begins")),
            (only_begin, a_missing_end.format("END after them", "ends")),
            (once, only_once.format(1)),
            (once_each, only_once.format(2)),
            (two_ends, "you count END after END, where one document ends and the next one begins: take the pairs of "
                       "each document by itself"),
        ],
    )  # fmt: skip
    expect(lesson.count_pairs([[]], 2), [[1, 0], [0, 0]], "the pairs of an empty document: END follows END")
    try:
        expect(lesson.count_pairs([(1,)], 2), [[0, 1], [1, 0]], "the pairs of (1,), a document that is a tuple")
    except TypeError:
        raise Wrong(_A_TUPLE) from None
    expect(
        lesson.count_pairs([[1, 1]] * 3000, 2),
        [[0, 3000], [3000, 3000]],
        "the document [1, 1], 3,000 times",
        [
            (np.array([[0, 184], [184, 184]]), "the pair 1, 1 comes 3,000 times, but you have 184: an integer of 8 "
                                               "bits counts to 255 and begins again at 0"),
            (np.array([[0, 2048], [2048, 2048]]), "the pair 1, 1 comes 3,000 times, but you have 2,048: a float of 16 "
                                                  "bits has no 2,049, so 2,048 + 1 is rounded back"),
        ],
    )  # fmt: skip
    random = draws("count_pairs")
    for n_words in (3, 40):
        documents = [random.integers(1, n_words, size=n).tolist() for n in (1, 2, 9, 200)]
        expect(lesson.count_pairs(documents, n_words), _pairs(documents, n_words), f"four documents of {n_words} words")


_A_TUPLE = ("the document (1,) is a tuple, as those in `language.documents`: to a list, `+` adds only lists; "
            "`[END, *document]` takes both")  # fmt: skip


def _pairs(documents: list[list[int]], n_words: int) -> np.ndarray:
    counts = np.zeros((n_words, n_words))
    for document in documents:
        for a, b in zip([0, *document], [*document, 0], strict=True):
            counts[a, b] += 1
    return counts


def probabilities_of(lesson: ModuleType) -> None:
    counts = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    alpha = 0.5
    raised = counts + alpha
    with np.errstate(divide="ignore", invalid="ignore"):
        once = raised / (counts.sum(axis=1, keepdims=True) + alpha)
        of_counted = raised / counts.sum(axis=1, keepdims=True)
        only_zeros = np.where(counts == 0, alpha, counts)
        unsmoothed = np.nan_to_num(counts / counts.sum(axis=1, keepdims=True))
    answer = lesson.probabilities_of(counts.copy(), alpha)
    if answer is not None and np.shape(answer) == (3, 3) and np.isnan(np.asarray(answer)).any():
        raise Wrong("a word that never came, but for alpha, gives you 0/0: add alpha to the counts before you divide")
    expect(
        answer,
        raised / raised.sum(axis=1, keepdims=True),
        "counts (3, 1, 0), (0, 0, 2), (0, 0, 0) with alpha = 0.5",
        [
            (once, "your first row sums to 1.22: each of its three pairs got alpha, but you divide as if only one had"),
            (of_counted, "you divide by what was counted: your first row sums to 1.375, and a word that never came is "
                         "divided by 0; the invented pairs belong into the sum, too"),
            (raised / raised.sum(axis=0, keepdims=True),
             "your columns sum to 1, not your rows: that is which word came before, given the one after"),
            (raised / raised.sum(axis=1),
             "neither rows nor columns sum to 1: you divide each *column* by the sum of a row, because NumPy lays a "
             "flat array of sums along the last axis"),
            (raised / raised.sum(), "the whole table sums to 1: that is how often a pair comes at all, not what comes "
                                    "next if the first word is known"),
            (only_zeros / only_zeros.sum(axis=1, keepdims=True),
             "only the pairs that never came got alpha: with alpha = 1, never would be as likely as once"),
            (unsmoothed + alpha, "you add alpha to the shares, not to the counts: your rows no longer sum to 1, and "
                                 "alpha weighs as much after 1,000 pairs as after one"),
        ],
    )  # fmt: skip
    counts = np.array([[8.0, 1.0], [0.0, 1.0]])
    expect(lesson.probabilities_of(counts, 0), [[8 / 9, 1 / 9], [0.0, 1.0]], "without smoothing")
    lesson.probabilities_of(counts, 1.0)
    if not np.array_equal(counts, [[8.0, 1.0], [0.0, 1.0]]):
        raise Wrong("the probabilities are right, but your function has changed the counts that it was given")
    whole = np.array([[3, 1, 0], [0, 0, 2], [0, 0, 0]])
    answer = lesson.probabilities_of(whole, alpha)
    expect(
        answer,
        raised / raised.sum(axis=1, keepdims=True),
        "the same counts as integers",
        [(np.zeros((3, 3)), "counts may be integers, and then your array holds integers, too: all that is below 1 "
                            "becomes 0")],
    )  # fmt: skip
    random = draws("probabilities_of")
    for n in (1, 2, 30):
        counts, alpha = random.poisson(1.0, size=(n, n)).astype(float), float(random.uniform(0.01, 2))
        right = np.array([[(c + alpha) / (sum(row) + n * alpha) for c in row] for row in counts])
        expect(lesson.probabilities_of(counts, alpha), right, f"a table of {n} words with alpha = {alpha:.3f}")


def floor_of_pairs(lesson: ModuleType) -> None:
    expected = np.array([[0.0, 3.0, 0.0, 1.0], [2.0, 0.0, 2.0, 4.0], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    total, rows = expected.sum(), expected.sum(axis=1, keepdims=True)
    right = float((_surprise(expected, rows) * expected).sum() / total)
    columns = expected.sum(axis=0)
    of_rows = (_surprise(expected, rows) * expected).sum(axis=1)[:3] / rows[:3, 0]
    joint = float((_surprise(expected, total) * expected).sum() / total)
    given = expected.copy()
    answer = lesson.floor_of_pairs(given)
    if not np.array_equal(given, expected):
        raise Wrong(
            "your function has changed the table that it was given, and the page uses it again; make a new array"
        )
    if answer is not None and np.ndim(answer) == 0 and np.isnan(answer):
        raise Wrong("you get NaN: a pair that never comes gives 0 · ln 0, or 0/0 if its whole row is empty; it costs "
                    "nothing, so leave it out")  # fmt: skip
    wrong = f"; you have {{:.3f}} nats, not {right:.3f}"
    unweighted = ("each row counts as much as every other, but a word that comes often asks the model for its "
                  "prediction often" + wrong)  # fmt: skip
    backwards = float((_surprise(expected, np.broadcast_to(columns, expected.shape)) * expected).sum() / total)
    alone = float((_surprise(columns, total) * columns).sum() / total)
    last = rows[rows > 0] / total
    last_alone = float(-(last * np.log(last)).sum())
    expect(
        answer,
        right,
        "the floor of a table of pairs",
        [
            (joint, ("that is the entropy of the pair: it charges for the first word, too, which the model has seen"
                     + wrong).format(joint)),
            (of_rows.mean(), unweighted.format(of_rows.mean())),
            (of_rows.sum() / 4, unweighted.format(of_rows.sum() / 4)),
            (of_rows.sum(), unweighted.format(of_rows.sum())),
            (right / np.log(2), f"you have {right / np.log(2):.3f}, not {right:.3f}: 1.443 times as much, so these are "
                                "bits; a nat is 1.443 bits"),
            (alone, ("that is the entropy of the next word alone: what a model can do that has forgotten the last word"
                     + wrong).format(alone)),
            (last_alone, ("that is the entropy of the last word, which the model sees; the next one costs"
                          + wrong).format(last_alone)),
            (backwards, ("you divide by the sums of the columns: that is how well the *last* word can be told from the "
                         "next one" + wrong).format(backwards)),
            (-right, f"your floor is {-right:.3f}, below 0: ln of a probability is negative, and a surprise is "
                     "minus that"),
            (right * total, f"you have {right * total:.2f}, not {right:.3f}: those are the nats of a whole text; "
                            "divide by its number of words"),
        ],
    )  # fmt: skip

    random = draws("floor_of_pairs")
    for n in (1, 4, 20):
        table = np.where(random.random((n, n)) < 0.5, 0.0, random.exponential(size=(n, n)) ** 4)
        table[0, 0] = 1.0
        right = float((_surprise(table, table.sum(axis=1, keepdims=True)) * table).sum() / table.sum())
        expect(lesson.floor_of_pairs(table.copy()), right, f"the floor of a table of {n} words")
        expect(
            lesson.floor_of_pairs(table * 1e-4),
            right,
            f"the floor of a table of {n} words, each pair 10,000 times as rare: no probability changes",
        )


def _surprise(numbers: np.ndarray, out_of: np.ndarray | float) -> np.ndarray:
    """-ln of the share, 0 where nothing is."""
    shares = np.divide(numbers, out_of, out=np.ones_like(numbers), where=numbers > 0)
    return -np.log(shares)


def stable_log_softmax(lesson: ModuleType) -> None:
    z = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    exponentials = np.exp(z)
    given = z.copy()
    try:
        with np.errstate(all="ignore"):
            answer = lesson.stable_log_softmax(given)
    except AttributeError as error:
        if "'value'" not in str(error):
            raise
        raise Wrong("the functions of your tape take a Tensor, but z is an array: write this one with NumPy") from None
    if np.shape(answer) == z.shape and np.isposinf(np.asarray(answer, dtype=float)).any():
        raise Wrong("small logits, less a large fixed number: every exponential rounds to 0, and ln 0 is -inf. The "
                    "number that you subtract must come from the row itself")  # fmt: skip
    lowered = z - z.max(axis=-1, keepdims=True)
    expect(
        answer,
        np.log(exponentials / exponentials.sum(axis=-1, keepdims=True)),
        "the logits (1, 2, 0.5) and (0, -1, 3)",
        [
            (np.log(exponentials / exponentials.sum(axis=0)), "you sum down the columns: each *row* is a softmax"),
            (np.log(exponentials / exponentials.sum()),
             "all six probabilities together sum to 1: each *row* is a softmax"),
            (lowered - np.log(np.exp(lowered).sum()),
             "the sum of the exponentials runs over all rows: each *row* is a softmax"),
            (lowered - np.exp(lowered).sum(axis=-1, keepdims=True),
             "you subtract the sum of the exponentials; ln (a / b) is ln a - ln b"),
            (exponentials / exponentials.sum(axis=-1, keepdims=True), "that is the softmax; its logarithm is asked"),
        ],
    )  # fmt: skip
    if not np.array_equal(given, z):
        raise Wrong("the result is right, but your function has changed the logits that it was given")
    for logits, overflows, underflows in (
        ([1000.0, 999.0, 998.0], "the logits 1000, 999, 998: e^1000 overflows to inf. Only differences matter: which "
                                 "number can you subtract first?", ""),
        ([0.0, 0.0, 3000.0], "the logits 0, 0, 3000: their mean is 1000, and e^(3000 - 1000) still overflows. Which "
                             "number must you subtract so that none is above 0?",
         "the logits 0, 0, 3000: e^-3000 rounds to 0, and ln 0 is -inf; but the answer is -3000. Write ln softmax as a "
         "difference: which part needs no exponential?"),
        ([-1000.0, -1000.0, -1000.0], "three logits of -1000: every exponential rounds to 0, and ln 0 is -inf", ""),
    ):  # fmt: skip
        with np.errstate(all="ignore"):
            answer = lesson.stable_log_softmax(np.array([logits]))
        if not np.isfinite(np.max(answer)):
            raise Wrong(overflows)
        if not np.isfinite(answer).all():
            raise Wrong(underflows)
        shifted = np.array([logits]) - max(logits)
        right = shifted - np.log(np.exp(shifted).sum())
        if np.shape(answer) == right.shape and min(right[0]) < -100 < np.min(answer):
            raise Wrong(
                f"the logits 0, 0, 3000: you have {np.min(answer):.1f} for the first, not -3000: a small number added "
                "before the logarithm hides that e^-3000 is rounded to 0, and makes the loss too small"
            )
        expect(answer, right, f"the logits {', '.join(f'{each:.0f}' for each in logits)}")
    with np.errstate(all="ignore"):
        answer = lesson.stable_log_softmax(np.array([[0.0, 1.0], [-3000.0, -3000.0]]))
    if not np.isfinite(answer).all():
        raise Wrong("the rows (0, 1) and (-3000, -3000): the largest of *all* logits is 1, so the whole second row "
                    "rounds to 0; each row needs its own largest logit")  # fmt: skip
    expect(
        lesson.stable_log_softmax(np.zeros((2, 1, 3))),
        np.full((2, 1, 3), -np.log(3)),
        "an array (2, 1, 3) of zeros",
        [(np.zeros((2, 1, 3)), "an array (2, 1, 3) of zeros: each softmax runs over the *last* axis, here 3 logits")],
    )
    random = draws("stable_log_softmax")
    for shape in ((5,), (1, 1), (40, 3), (2, 3, 4)):
        for scale in (1.0, 1e4):
            z = scale * random.normal(size=shape)
            shifted = z - z.max(axis=-1, keepdims=True)
            right = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
            try:
                answer = lesson.stable_log_softmax(z.copy())
            except ValueError:  # NumPy's error about an axis is one
                raise Wrong(f"logits of the shape {shape}: your function asks for an axis that is not there; the last "
                            "axis has the number -1, however many there are") from None  # fmt: skip
            expect(answer, right, f"logits of the shape {shape}, as large as {abs(z).max():.3g}")


def gradient_of_cross_entropy(lesson: ModuleType) -> None:
    random = np.random.default_rng(5)
    z, targets = random.normal(size=(3, 4)), np.array([2, 0, 2])
    p = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    one_hot = np.eye(4)[targets]
    right = (p - one_hot) / 3
    of_target = p[np.arange(3), targets][:, None]
    of_p = of_target * (p - one_hot)
    bells = p * (1 - p)
    no_one = ("your gradient has no negative number: a step against it lowers every logit, also that of the word that "
              "came; where does the -z of that word's loss go?")  # fmt: skip
    sign = "the sign is reversed: a step against your gradient makes the word that came *less* likely"
    softmax_alone = ("that is the derivative of the probability, p(1 - p) and the like; the loss is its logarithm, "
                     "which divides by p once more")  # fmt: skip
    in_each_row = "you subtract the 1 in each row at *all* the words that came; in row i, only word targets[i] came"
    in_logs = "you took ln p - 1; the gradient is p - 1, and `stable_log_softmax` gives ln p"
    everywhere = "you subtract 1 everywhere; in row i it belongs at word targets[i] alone, the word that came"
    alone = "the words that did not come have no gradient: they must lose what that word gains, each in proportion to p"
    total = "each row is 3 times too large: the loss is the mean over 3 rows, not their sum"
    try:
        answer = lesson.gradient_of_cross_entropy(z.copy(), targets)
    except ValueError as error:
        if "broadcast" not in str(error):
            raise
        raise Wrong(
            "three rows of four logits, and the words 2, 0 and 2 came: two of your shapes do not fit. Word 3 did not "
            "come, but it has its logits, too; `z.shape` knows how many words there are"
        ) from None
    expect(
        answer,
        right,
        "three rows of four logits",
        [
            (p / 3, no_one), (p, no_one), (p - p * one_hot, no_one), ((p - p * one_hot) / 3, no_one),
            (-right, sign), (-3 * right, sign),
            (of_p / 3, softmax_alone), (of_p, softmax_alone), (-of_p / 3, softmax_alone), (-of_p, softmax_alone),
            (bells, softmax_alone), (bells / 3, softmax_alone),
            (-bells * one_hot, softmax_alone), (-bells * one_hot / 3, softmax_alone),
            (3 * right, total),
            (np.log(p) - one_hot, in_logs), ((np.log(p) - one_hot) / 3, in_logs),
            (p - 1, everywhere), ((p - 1) / 3, everywhere),
            ((p - one_hot) * one_hot, alone), ((p - one_hot) * one_hot / 3, alone),
            (p / 3 - one_hot, "you divide p by 3, but not the 1: the mean over the rows divides the whole difference"),
            (right / 4, "you divide by all 12 logits; the mean is over the 3 rows"),
            ((p - one_hot.any(axis=0)) / 3, in_each_row), (p - one_hot.any(axis=0), in_each_row),
        ],
    )  # fmt: skip
    before = z.copy()
    lesson.gradient_of_cross_entropy(z, targets)
    if not np.array_equal(z, before):
        raise Wrong("the gradient is right, but your function has changed the logits that it was given")

    def of(z: np.ndarray, targets: np.ndarray, what: str, tried: str = "") -> None:
        with np.errstate(all="ignore"):
            answer = lesson.gradient_of_cross_entropy(z.copy(), targets)
        if np.shape(answer) == z.shape and not np.isfinite(np.asarray(answer, dtype=float)).all():
            raise Wrong(f"{what}: you have NaN; an exponential overflows. The section before has the remedy")
        lowered = np.exp(z - z.max(axis=1, keepdims=True))
        right = (lowered / lowered.sum(axis=1, keepdims=True) - np.eye(z.shape[1])[targets]) / len(z)
        if tried and np.shape(answer) == z.shape and not np.allclose(answer, right, rtol=0, atol=1e-9):
            raise Wrong(tried)
        expect(answer, right, what)

    of(
        2.0**20 + np.array([[1.0, 0.5, -0.25, 2.0]]), np.array([0]), "logits near a million",
        "four logits near a million: only their differences matter, but your gradient is no longer right. A small step "
        "to both sides is lost in the rounding there; p - 1 needs no step",
    )  # fmt: skip
    of(np.array([[1000.0, 999.0, 998.0], [-1000.0, 0.0, 1000.0]]), np.array([2, 0]), "logits of 1000 and -1000")
    of(np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]]), np.array([0, 2]), "logits of which several are equal")
    random = draws("gradient_of_cross_entropy")
    for n, n_words, scale in ((1, 2, 1.0), (7, 5, 3.0), (3, 30, 20.0)):
        of(scale * random.normal(size=(n, n_words)), random.integers(0, n_words, n), f"{n} rows of {n_words} logits")


def windows(lesson: ModuleType) -> None:
    _two_words(lesson)
    documents = [[1, 2, 3, 4], [5, 6], [1, 2, 3]]
    kept = deepcopy(documents)
    for n_ctx in (3, 1, 5):
        _compare(lesson, documents, n_ctx)
        if documents != kept:
            raise Wrong(f"your function has changed the documents that it was given: the first is now {documents[0]}, "
                        "and the next one who reads it finds words that nobody wrote; make a new list")  # fmt: skip
    random = draws("windows")
    for n_ctx, n_words in ((2, 3), (4, 2000)):
        documents = [random.integers(1, n_words, size=n).tolist() for n in random.integers(1, 8, size=5)]
        _compare(lesson, [*documents, [n_words - 1]], n_ctx)
    _compare(lesson, [[1, 2], [], [1]], 2)
    try:
        _compare(lesson, [(1,)], 2)
    except TypeError:
        raise Wrong(_A_TUPLE) from None
    inputs, targets = lesson.windows(documents, 4)
    ours, lesson.mlp_loss = lesson.mlp_loss, _loss_on_tape
    parameters = lesson.new_parameters(2000, 4, d=2, n_hidden=3)
    try:
        lesson.train(parameters, inputs, targets, n_steps=2)
    except (IndexError, TypeError, ValueError) as error:
        raise Wrong(f"`train` can't learn from your windows: {error}") from None
    finally:
        lesson.mlp_loss = ours


def _loss_on_tape(parameters: Any, inputs: np.ndarray, targets: np.ndarray) -> Any:
    """The network's loss, for an exercise that only makes its input."""
    C = parameters["C"]
    x = tape.concatenate([C[inputs[:, place]] for place in range(inputs.shape[1])])
    hidden = tape.tanh(x @ parameters["W_1"] + parameters["b_1"])
    return -tape.log_softmax(hidden @ parameters["W_2"] @ C.T)[np.arange(len(targets)), targets].mean()


def _cut(lesson: ModuleType, documents: Sequence[Sequence[int]], n_ctx: int) -> list[tuple[int, ...]]:
    """The student's windows with their targets, a row for each, if they are arrays as `train` needs them."""
    fixed = (f"with n_ctx = {n_ctx}, each window has {n_ctx} words, and {n_ctx} ENDs stand before a document: n_ctx "
             "may be any number")  # fmt: skip
    try:
        answer = lesson.windows(documents, n_ctx)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise Wrong("your windows have different lengths: before the first words there are not enough words; put n_ctx "
                    "ENDs there" if n_ctx == 2 else fixed) from None  # fmt: skip
    if answer is None:
        raise Wrong("your function returns None; is a `return` missing?")
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("two arrays are asked: the windows and the targets")
    for each, name in zip(answer, ("windows", "targets"), strict=True):
        if not isinstance(each, np.ndarray):
            raise Wrong(f"your {name} are a {type(each).__name__}; `train` takes many rows and columns at once, so "
                        "make an array of it with `np.array`")  # fmt: skip
        if not np.issubdtype(each.dtype, np.integer):
            raise Wrong(f"your {name} are of the type {each.dtype}: an id says which row of C is taken, and there is "
                        "no row 1.0; ids are integers")  # fmt: skip
        if each.dtype.itemsize == 1:
            raise Wrong(f"your {name} are integers of 8 bits, which end at 255 at most; the demo has a token 2,047")
    inputs, targets = answer
    if n_ctx != 2 and inputs.ndim == 2 and inputs.shape[1] != n_ctx:
        raise Wrong(fixed)
    if inputs.ndim != 2 or inputs.shape[1] != n_ctx or targets.shape != (len(inputs),):
        raise Wrong(f"with n_ctx = {n_ctx}, windows (N, {n_ctx}) and targets (N) are asked; yours are {inputs.shape} "
                    f"and {targets.shape}")  # fmt: skip
    return [(*map(int, window), int(target)) for window, target in zip(inputs, targets, strict=True)]


def _compare(lesson: ModuleType, documents: Sequence[Sequence[int]], n_ctx: int) -> None:
    rows = []
    for document in documents:
        for i, target in enumerate([*document, 0]):
            rows.append((*[*[0] * n_ctx, *document][i : i + n_ctx], target))
    given = _cut(lesson, documents, n_ctx)
    if sorted(given) == sorted(rows):
        return
    lost = [row for row in sorted(set(rows)) if given.count(row) < rows.count(row)]
    extra = [row for row in sorted(set(given)) if given.count(row) > rows.count(row)]
    what = f"with n_ctx = {n_ctx}, the window {(lost or extra)[0][:-1]} before {(lost or extra)[0][-1]}"
    if extra:
        raise Wrong(f"the documents {documents}: {what} " + ("is missing" if lost else "is one too many"))
    if set(given) == set(rows):
        raise Wrong(f"{what} comes {rows.count(lost[0])} times, and you have it {given.count(lost[0])} times; what "
                    "comes often is to be learned often")  # fmt: skip
    if [] in documents:
        raise Wrong(f"{what} is missing: a document without words has an END, too, and it is to be predicted")
    if any(len(document) < n_ctx for document in documents):
        raise Wrong(f"{what} is missing: a document may be shorter than a window; ENDs stand before it")
    raise Wrong(f"the documents {documents}: {what} is missing")


def _two_words(lesson: ModuleType) -> None:
    rows = [(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (0, 0, 5), (0, 5, 6), (5, 6, 0)]
    given = _cut(lesson, [[1, 2, 3, 4], [5, 6]], 2)
    if sorted(given) == sorted(rows):
        return
    if sorted((b, a, target) for a, b, target in given) == sorted(rows):
        raise Wrong("your windows have the newest word first: the oldest is asked first, as one reads")
    if len(given) >= 6 and all(target == b for _, b, target in given):
        raise Wrong("the target is the last word of its own window: the model sees the answer, and its loss falls "
                    "below the floor")  # fmt: skip
    if (4, 0, 5) in given or (4, 5, 6) in given:
        raise Wrong("a window of the second document reaches into the first: what came before is another text, and "
                    "says nothing about this one")  # fmt: skip
    if (0, 0, 2) in given:
        raise Wrong("your targets come one word too late: right after the two ENDs stands 1, not 2")
    if not any(target == 0 for *_, target in given):
        raise Wrong("the END is never a target: a model must learn where a text ends, too")
    if (0, 0, 1) not in given:
        raise Wrong("nobody predicts the first words of a document: before them stand ENDs, so each has a full window")
    if set(given) < set(rows) and (0, 1, 2) not in given:
        raise Wrong("your windows don't overlap: 2 is never a target, but each word is to be predicted once")
    raise Wrong(f"[1, 2, 3, 4] and [5, 6] with n_ctx = 2: rows (window, target) {rows} are right; yours are {given}")


def mlp_loss(lesson: ModuleType) -> None:
    random = np.random.default_rng(6)
    n_words, n_ctx, d, n_hidden = 7, 3, 2, 5
    shapes = {"C": (n_words, d), "W_1": (n_ctx * d, n_hidden), "b_1": (n_hidden,), "W_2": (n_hidden, d)}
    values = {name: random.normal(size=shape) for name, shape in shapes.items()}
    inputs, targets = random.integers(0, n_words, (4, n_ctx)), np.array([6, 1, 1, 3])
    parameters = {name: lesson.Tensor(value) for name, value in values.items()}
    try:
        answer = lesson.mlp_loss(parameters, inputs, targets)
    except (IndexError, TypeError, ValueError) as error:
        for part, sentence in (
            ("size 6 is different from 2", "x has d = 2 numbers for each window, but W_1 has n_ctx d = 6 rows: lay the "
                                           "embeddings side by side; added up, they forget which came first"),
            ("axis 1 with size 2", "there are d = 2 logits for 7 words: after W_2 follow products with the rows of C"),
            ("does not support ufuncs", "a NumPy function has met a Tensor: use `tanh` of the tape, not `np.tanh`"),
        ):  # fmt: skip
            if part in str(error):
                raise Wrong(sentence) from None
        raise
    if answer is not None and not hasattr(answer, "parents"):
        raise Wrong(f"your loss is a {type(answer).__name__}, not a Tensor: the tape has lost it, so nothing can "
                    "learn; leave out `.value`")  # fmt: skip

    def loss(**ways: object) -> float:
        return _mlp_loss(values, inputs, targets, **ways)

    right = loss()
    of_log_p = -right
    expect(
        answer,
        right,
        "the loss of a network with 7 words, windows of 3 and 4 rows",
        [
            (4 * right, "your loss is 4 times too large: it is the sum over 4 windows, and a step would grow with the "
                        "batch; the mean is asked"),
            (loss(all_targets=True), "you take the ln p of *every* target in each row; in row i, only targets[i] came"),
            (of_log_p, "your loss is the mean of ln p, a negative number: going down would make the right words less "
                       "likely"),
            (loss(newest_first=True), "the embeddings of a window stand the newest first: the rows of W_1 for the "
                                      "oldest word meet the newest one; the oldest is asked first"),
            (loss(by_coordinate=True), "side by side means a whole embedding, then the next: you have the first "
                                       "coordinates of all words, then the second ones"),
            (loss(linear=True), "there is no tanh: without it, W_1, W_2 and C make one matrix, and the hidden layer "
                                "adds nothing to a table"),
            (loss(tanh_twice=True), "there is a tanh too many: after W_2, no number would be outside -1 to 1"),
            (loss(no_bias=True), "b_1 is missing"),
        ],
    )  # fmt: skip
    lesson.backward(answer)
    for name in ("W_2", "b_1", "W_1", "C"):
        slopes = _slopes(values[name], loss)
        found = np.asarray(parameters[name].gradient)
        if name == "C" and found.shape == slopes.shape and not np.allclose(found, slopes, atol=1e-5):
            raise Wrong("the loss is right, but the gradient of C is not: C is used twice, for the windows and for the "
                        "logits, and only one of the two is on the tape")  # fmt: skip
        lost = [(0 * slopes, f"the loss is right, but {name} gets no gradient: on the way to the loss something became "
                             "plain numbers, and the walk back ends there")]  # fmt: skip
        expect(found, slopes, f"the gradient of {name}", lost, tolerance=1e-5)
    dice = draws("mlp_loss")
    for n_words, n_ctx, d, n_hidden, n_rows in ((7, 2, 2, 5, 4), (5, 1, 3, 2, 1), (9, 5, 4, 6, 3)):
        shapes = {"C": (n_words, d), "W_1": (n_ctx * d, n_hidden), "b_1": (n_hidden,), "W_2": (n_hidden, d)}
        inputs, targets = dice.integers(0, n_words, (n_rows, n_ctx)), dice.integers(0, n_words, n_rows)
        if n_rows > 3:
            inputs[1], targets[1] = inputs[0], targets[0]  # what comes twice counts twice
        for scale in (1.0, 100.0):
            values = {name: scale * dice.normal(size=shape) for name, shape in shapes.items()}
            try:
                with np.errstate(all="ignore"):
                    answer = lesson.mlp_loss(
                        {name: tape.Tensor(each) for name, each in values.items()}, inputs, targets
                    )
            except (IndexError, ValueError):
                raise Wrong(f"windows of 3 words are right, but here they have {n_ctx}: `inputs.shape[1]` says how "
                            "many") from None  # fmt: skip
            if scale > 1 and np.ndim(answer.value) == 0 and not np.isfinite(answer.value):
                raise Wrong("with weights of about 100, your loss is not a number any more: an exponential overflows, "
                            "or rounds to 0; `log_softmax` of the tape knows what to do")  # fmt: skip
            what = f"the loss with windows of {n_ctx} words, {n_rows} rows and weights of about {scale:.0f}"
            expect(answer, _mlp_loss(values, inputs, targets), what)


def _mlp_loss(
    values,
    inputs,
    targets,
    newest_first=False,
    by_coordinate=False,
    linear=False,
    tanh_twice=False,
    no_bias=False,
    all_targets=False,
) -> float:
    x = values["C"][inputs]
    x = x[:, ::-1] if newest_first else x
    x = x.swapaxes(1, 2) if by_coordinate else x
    hidden = x.reshape(len(x), -1) @ values["W_1"] + (0 if no_bias else values["b_1"])
    out = (hidden if linear else np.tanh(hidden)) @ values["W_2"]
    z = (np.tanh(out) if tanh_twice else out) @ values["C"].T
    picked = z[:, targets].mean(axis=1) if all_targets else z[np.arange(len(z)), targets]
    return float(np.mean(np.logaddexp.reduce(z, axis=1) - picked))


def _slopes(value: np.ndarray, loss) -> np.ndarray:
    """The derivative of the loss by each number of an array that it reads, by trying."""
    slopes = np.zeros_like(value)
    for place in np.ndindex(value.shape):
        kept, both = value[place], []
        for step in (1e-5, -1e-5):
            value[place] = kept + step
            both.append(loss())
        value[place] = kept
        slopes[place] = (both[0] - both[1]) / 2e-5
    return slopes
