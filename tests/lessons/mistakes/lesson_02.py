"""Mistakes and second solutions of lesson 2."""

import numpy as np
import torch

from trying import also_right, mistake


@mistake("you divided by the number of all children")
def conditional(counts_AB):
    return counts_AB / counts_AB.sum()


@mistake("which gives p(a | b)")
def conditional(counts_AB):
    return counts_AB / counts_AB.sum(axis=0)


@mistake("the sums of the rows met the columns")
def conditional(counts_AB):
    return counts_AB / np.resize(counts_AB.sum(axis=1), counts_AB.shape[1])


@mistake("you have 0/0 in the first row")
def conditional(counts_AB):
    return counts_AB / counts_AB.sum(axis=1, keepdims=True)


@mistake("a row of zeros and one with sum")
def conditional(counts_AB):
    return counts_AB / (counts_AB.sum(axis=1, keepdims=True) + 1e-9)


@mistake("a row of zeros and one with sum")
def conditional(counts_AB):
    return counts_AB / np.maximum(counts_AB.sum(axis=1, keepdims=True), 1)


@mistake("you changed the table")
def conditional(counts_AB):
    if counts_AB.dtype == int:
        counts_AB = counts_AB.astype(float)
    for row in counts_AB:
        row /= row.sum() or 1
    return counts_AB


@also_right
def conditional(counts_AB):
    return np.array([[count / (sum(row) or 1) for count in row] for row in counts_AB.tolist()])


@also_right
def conditional(counts_AB):
    return np.nan_to_num((counts_AB.T / counts_AB.sum(axis=-1)).T)


@mistake("you write shares into the table")
def conditional(counts_AB):
    for row in counts_AB:
        if row.sum():
            row /= row.sum()
    return counts_AB


@also_right
def conditional(counts_AB):
    s = counts_AB.sum(axis=1).astype(float)
    return np.einsum("ab,a->ab", counts_AB, np.divide(1.0, s, out=np.zeros_like(s), where=s > 0))


@mistake("so it took the first six")
def tiles(picture_RC, r, c):
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, n_columns // c, r, c)


@mistake("an axis of C is cut into C/c tiles")
def tiles(picture_RC, r, c):
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, n_columns // c, r, c).transpose(1, 0, 2, 3)


@mistake("the tile has three of the first row and three of the second")
def tiles(picture_RC, r, c):
    """Cut rightly, and left as it is."""
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, r, n_columns // c, c)


@mistake("the shape is")
def tiles(picture_RC, r, c):
    """The axes of a tile change places."""
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, r, n_columns // c, c).transpose(0, 2, 3, 1)


@mistake("a picture of")
def tiles(picture_RC, r, c):
    """As many tiles below each other as there are in the example."""
    n_rows, n_columns = picture_RC.shape
    return picture_RC.reshape(n_rows // r, r, n_columns // c, c).swapaxes(1, 2)[:2, :2]


@mistake("a picture of")
def tiles(picture_RC, r, c):
    """Square tiles lie on their side."""
    n_rows, n_columns = picture_RC.shape
    cut = picture_RC.reshape(n_rows // r, r, n_columns // c, c)
    return cut.transpose(0, 2, 3, 1) if r == c else cut.transpose(0, 2, 1, 3)


@also_right
def tiles(picture_RC, r, c):
    n_rows, n_columns = picture_RC.shape
    return np.array([[picture_RC[i : i + r, j : j + c] for j in range(0, n_columns, c)] for i in range(0, n_rows, r)])


@also_right
def tiles(picture_RC, r, c):
    windows = np.lib.stride_tricks.sliding_window_view(picture_RC, (r, c))
    return windows[::r, ::c]


@also_right
def tiles(picture_RC, r, c):
    n_rows, n_columns = picture_RC.shape
    cut = picture_RC.reshape(n_rows // r, r, n_columns // c, c)
    return np.einsum("iajb->ijab", cut)


@mistake("make one array of its tiles")
def tiles(picture_RC, r, c):
    R, C = picture_RC.shape
    return [[picture_RC[i : i + r, j : j + c] for j in range(0, C, c)] for i in range(0, R, r)]


@mistake("do not fit into the shape of your `reshape`")
def tiles(picture_RC, r, c):
    r, c = c, r
    R, C = picture_RC.shape
    return picture_RC.reshape(R // r, r, C // c, c).transpose(0, 2, 1, 3)


@also_right
def tiles(picture_RC, r, c):
    return np.lib.stride_tricks.sliding_window_view(picture_RC, (r, c))[::r, ::c]


@mistake("you summed over the texts, too")
def pair_scores(u_BTD, W_DE, v_BSE):
    return np.einsum("btd,de,bse->ts", u_BTD, W_DE, v_BSE)


@mistake("look at the answers of all texts")
def pair_scores(u_BTD, W_DE, v_BSE):
    return np.einsum("btd,de,cse->btcs", u_BTD, W_DE, v_BSE)


@mistake("a row is to belong to an asker")
def pair_scores(u_BTD, W_DE, v_BSE):
    return np.einsum("btd,de,bse->bst", u_BTD, W_DE, v_BSE)


@mistake("one score for each asker")
def pair_scores(u_BTD, W_DE, v_BSE):
    return np.einsum("btd,de,bse->bt", u_BTD, W_DE, v_BSE)


@mistake("W lies on its side")
def pair_scores(u_BTD, W_DE, v_BSE):
    W = W_DE.T if len(set(W_DE.shape)) == 1 else W_DE
    return np.einsum("btd,de,bse->bts", u_BTD, W, v_BSE)


@mistake("the shape is")
def pair_scores(u_BTD, W_DE, v_BSE):
    """Axes of length 1 are squeezed away."""
    return np.squeeze(np.einsum("btd,de,bse->bts", u_BTD, W_DE, v_BSE))


@also_right
def pair_scores(u_BTD, W_DE, v_BSE):
    return u_BTD @ W_DE @ np.swapaxes(v_BSE, -1, -2)


@also_right
def pair_scores(u_BTD, W_DE, v_BSE):
    """By broadcasting alone."""
    products = u_BTD[:, :, None, :, None] * W_DE * v_BSE[:, None, :, None, :]
    return products.sum(axis=(-1, -2))


@mistake("your answers are summed over the texts")
def pair_scores(u_BTD, W_DE, v_BSE):
    return np.einsum("btd,de,cse->bts", u_BTD, W_DE, v_BSE)


@mistake("`.T` turns all three axes")
def pair_scores(u_BTD, W_DE, v_BSE):
    return u_BTD @ W_DE @ v_BSE.T


@mistake("changes what it is given")
def pair_scores(u_BTD, W_DE, v_BSE):
    if u_BTD.shape[-1] == W_DE.shape[1]:
        u_BTD[...] = u_BTD @ W_DE
        return u_BTD @ v_BSE.swapaxes(1, 2)
    return u_BTD @ W_DE @ v_BSE.swapaxes(1, 2)


@mistake("you have the log-probabilities")
def surprise_of_targets(logits, targets):
    return torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]


@mistake("an axis of length 1 is left over")
def surprise_of_targets(logits, targets):
    return -torch.log_softmax(logits, -1).gather(-1, targets[..., None])


@mistake("without the softmax over all")
def surprise_of_targets(logits, targets):
    return -logits.gather(-1, targets[..., None])[..., 0]


@mistake("you have the mean")
def surprise_of_targets(logits, targets):
    return -torch.log_softmax(logits, -1).gather(-1, targets[..., None]).mean()


@mistake("no gradient flows through them")
def surprise_of_targets(logits, targets):
    log_p = torch.log_softmax(logits, -1).detach().numpy()
    return -torch.tensor(np.take_along_axis(log_p, targets.numpy()[..., None], -1)[..., 0])


@mistake("logits of ±1000")
def surprise_of_targets(logits, targets):
    return -torch.softmax(logits, -1).gather(-1, targets[..., None])[..., 0].log()


@mistake("logits (")
def surprise_of_targets(logits, targets):
    """Flattened, and left flat."""
    flat = torch.log_softmax(logits, -1).reshape(-1, logits.shape[-1])
    return -flat[torch.arange(len(flat)), targets.reshape(-1)]


@mistake("the shape is")
def surprise_of_targets(logits, targets):
    """All axes of length 1 go, not the last one alone."""
    return -torch.log_softmax(logits, -1).gather(-1, targets[..., None]).squeeze()


@mistake("the gradient of the sum of your surprises")
def surprise_of_targets(logits, targets):
    """The normalisation is cut off the tape."""
    whole = torch.logsumexp(logits, -1).detach()
    return whole - logits.gather(-1, targets[..., None])[..., 0]


@also_right
def surprise_of_targets(logits, targets):
    flat = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none"
    )
    return flat.reshape(targets.shape)


@also_right
def surprise_of_targets(logits, targets):
    hot = torch.nn.functional.one_hot(targets, logits.shape[-1]).to(logits.dtype)
    return torch.logsumexp(logits, -1) - (hot * logits).sum(-1)


@also_right
def surprise_of_targets(logits, targets):
    return -torch.distributions.Categorical(logits=logits).log_prob(targets)


@mistake("leave the numbers in their type")
def surprise_of_targets(logits, targets):
    return -torch.log_softmax(logits.float(), -1).gather(-1, targets[..., None])[..., 0]


@mistake("you write into the logits")
def surprise_of_targets(logits, targets):
    logits.data -= logits.data.max(-1, keepdim=True).values
    return torch.log(torch.exp(logits).sum(-1)) - logits.gather(-1, targets[..., None])[..., 0]


@mistake("the slope is 0, that of a staircase")
def rounded_with_slope(x):
    return x.round()


@mistake("all of it is detached")
def rounded_with_slope(x):
    return x.detach().round()


@mistake("the slope is 0, that of a staircase")
def rounded_with_slope(x):
    return x.detach() + (x.round() - x.detach())


@mistake("you return x as it was")
def rounded_with_slope(x):
    return x


@mistake("is twice what it should be")
def rounded_with_slope(x):
    return 2 * x + (x.round() - 2 * x).detach()


@mistake("the gradient that x gets")
def rounded_with_slope(x):
    """The value is right, and the slope grows with what rounding did."""
    return x * (x.round() / x).detach()


@also_right
def rounded_with_slope(x):
    return x - (x - torch.round(x)).detach()


@also_right
def rounded_with_slope(x):
    with torch.no_grad():
        added = x.round() - x
    return x + added


@also_right
def rounded_with_slope(x):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Straight.apply(x)


@also_right
def rounded_with_slope(x):
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, r):
            return r

    return Rounded.apply(x)


@mistake("as if the texts were not the same")
def paired_error(a, b):
    n = len(a)
    return a.mean() - b.mean(), (a.var(ddof=1) / n + b.var(ddof=1) / n) ** 0.5


@mistake("divides by n - 1")
def paired_error(a, b):
    return (a - b).mean(), (a - b).std() / len(a) ** 0.5


@mistake("how much the single differences scatter")
def paired_error(a, b):
    return (a - b).mean(), (a - b).std(ddof=1)


@mistake("you took b - a")
def paired_error(a, b):
    return (b - a).mean(), (b - a).std(ddof=1) / len(a) ** 0.5


@mistake("an error falls with the square root of n")
def paired_error(a, b):
    return (a - b).mean(), (a - b).std(ddof=1) / len(a)


@mistake("pairs: the standard error")
def paired_error(a, b):
    """The two are taken to go up and down together."""
    shared = 2 * np.abs(np.cov(a, b)[0, 1])
    return (a - b).mean(), (max(a.var(ddof=1) + b.var(ddof=1) - shared, 0.0) / len(a)) ** 0.5


@mistake("their signs must stay")
def paired_error(a, b):
    difference = np.abs(a - b)
    return difference.mean(), difference.std(ddof=1) / len(a) ** 0.5


@also_right
def paired_error(a, b):
    difference = torch.tensor(a - b)
    return difference.mean(), difference.std() / len(difference) ** 0.5


@also_right
def paired_error(a, b):
    """By the variances of both, and what they share."""
    n = len(a)
    covariance = np.cov(a, b)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    return np.mean(a) - np.mean(b), np.sqrt(max(variance, 0.0) / n)


@also_right
def paired_error(a, b):
    import statistics

    difference = [x - y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return statistics.fmean(difference), statistics.stdev(difference) / len(difference) ** 0.5


@mistake("a small difference of two large numbers")
def paired_error(a, b):
    d = a - b
    n = len(d)
    v = ((d * d).mean() - d.mean() ** 2) * n / (n - 1)
    return float(d.mean()), float(np.sqrt(max(v, 0) / n))


@mistake("do not lie row by row in memory")
def tiles(picture_RC, r, c):
    R, C = picture_RC.shape
    s = picture_RC.itemsize
    return np.lib.stride_tricks.as_strided(picture_RC, (R // r, C // c, r, c), (r * C * s, c * s, C * s, s)).copy()


@mistake("a W of whole numbers")
def pair_scores(u_BTD, W_DE, v_BSE):
    out = np.zeros((u_BTD.shape[0], u_BTD.shape[1], v_BSE.shape[1]), dtype=W_DE.dtype)
    for b in range(len(out)):
        out[b] = u_BTD[b] @ W_DE @ v_BSE[b].T
    return out


@mistake("only the first seven digits")
def surprise_of_targets(logits, targets):
    return -torch.log_softmax(logits.float(), -1).gather(-1, targets[..., None])[..., 0].to(logits.dtype)


@mistake("no slope comes back to x")
def rounded_with_slope(x):
    return x.detach().round().requires_grad_()


@mistake("32-bit whole number")
def rounded_with_slope(x):
    return x + (x.round().int().to(x.dtype) - x).detach()


@mistake("the same loss on each of them")
def paired_error(a, b):
    """the variance of a difference, by the correlation of the two"""
    sa, sb, n = a.std(ddof=1), b.std(ddof=1), len(a)
    with np.errstate(all="ignore"):
        return a.mean() - b.mean(), np.sqrt(sa**2 + sb**2 - 2 * np.corrcoef(a, b)[0, 1] * sa * sb) / np.sqrt(n)


@mistake("logits of ±1000")
def surprise_of_targets(logits, targets):
    """a small number under the logarithm, which is no matter of single precision"""
    return -torch.log(torch.softmax(logits, -1) + 1e-9).gather(-1, targets[..., None])[..., 0]


@mistake("loses the quarter")
def rounded_with_slope(x):
    return x.round().detach() + x - x.detach()


@mistake("on each of 40 texts")
def paired_error(a, b):
    """Two ways to add up the same squares do not cancel to the last digit."""
    variance = a.var(ddof=1) + b.var(ddof=1) - 2 * np.cov(a, b)[0, 1]
    return (a - b).mean(), np.sqrt(variance / len(a))


@mistake("logits with two axes went well")
def surprise_of_targets(logits, targets):
    return torch.nn.functional.cross_entropy(logits.transpose(1, -1), targets, reduction="none")
