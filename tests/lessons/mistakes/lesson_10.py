"""Mistakes in lesson 10, with the sentence meant for each; and second solutions."""

import math

import numpy as np

from lesson_01 import concatenate, exp, log_softmax, relu, where
from lesson_10 import adam_step, join_heads, layer_norm, linear, norm, pre_norm_block, rotate, split_heads
from trying import also_right, mistake


@mistake("you divide by its square, the variance")
def layer_norm(x, gain, epsilon=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    return gain * centred / (x.var(axis=-1, keepdims=True) + epsilon)


@mistake("your ε stands beside the root")
def layer_norm(x, gain, epsilon=1e-5):
    return gain * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + epsilon)


@mistake("one mean and one deviation for the whole array")
def layer_norm(x, gain, epsilon=1e-5):
    return gain * (x - x.mean()) / (x.std() + epsilon)


@mistake("as batch norm does")
def layer_norm(x, gain, epsilon=1e-5):
    axes = tuple(range(x.ndim - 1)) or -1
    return gain * (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@mistake("you treat the mean and the deviation as constants")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    return cotangent * gain / std, (cotangent * normal).sum(axis=(0, 1))


@mistake("you let the mean move with x, but not the deviation")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    g = cotangent * gain
    return (g - g.mean(axis=-1, keepdims=True)) / std, (cotangent * normal).sum(axis=(0, 1))


@mistake("the cotangent passes the gain first")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    along_normal = normal * (cotangent * normal).mean(axis=-1, keepdims=True)
    to_x = (cotangent - cotangent.mean(axis=-1, keepdims=True) - along_normal) / std
    return to_x, (cotangent * normal).sum(axis=(0, 1))


@mistake("it is n times the *mean* of g ⊙ n")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    g = cotangent * gain
    to_x = (g - g.mean(axis=-1, keepdims=True) - normal * (g * normal).sum(axis=-1, keepdims=True)) / std
    return to_x, (cotangent * normal).sum(axis=(0, 1))


@also_right
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """The Jacobian of each vector, written out as a matrix."""
    D = x.shape[-1]
    to_x, to_gain = np.zeros(x.shape), np.zeros(D)
    for place in np.ndindex(x.shape[:-1]):
        std = math.sqrt(x[place].var() + epsilon)
        normal = (x[place] - x[place].mean()) / std
        J = np.diag(gain) @ (np.eye(D) - np.ones((D, D)) / D - np.outer(normal, normal) / D) / std
        to_x[place] = J.T @ cotangent[place]
        to_gain += cotangent[place] * normal
    return to_x, to_gain


@also_right
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Step by step, as a tape would do it."""
    D = x.shape[-1]
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).sum(axis=-1, keepdims=True) / D
    scale = (variance + epsilon) ** -0.5
    to_gain = (cotangent * centred * scale).sum(axis=tuple(range(x.ndim - 1)))
    to_scale = (cotangent * gain * centred).sum(axis=-1, keepdims=True)
    to_variance = to_scale * -0.5 * (variance + epsilon) ** -1.5
    to_centred = cotangent * gain * scale + to_variance * 2 * centred / D
    return to_centred - to_centred.sum(axis=-1, keepdims=True) / D, to_gain


@mistake("this is post-norm")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    x = attention_norm(x + attention(x))
    return feed_forward_norm(x + feed_forward(x))


@mistake("you normalise what a sublayer *returns*")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    x = x + attention_norm(attention(x))
    return x + feed_forward_norm(feed_forward(x))


@mistake("reads the x from before attention")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    return x + attention(attention_norm(x)) + feed_forward(feed_forward_norm(x))


@mistake("you add to the normalised x")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    x = attention_norm(x)
    x = feed_forward_norm(x + attention(x))
    return x + feed_forward(x)


@mistake("3 times too long")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    return parameter - rate * mean / (np.sqrt(square) + epsilon), mean, square


@mistake("You follow the notes' slip")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    unbiased_mean = mean / (1 - betas[0] ** n)
    unbiased_square = mean / (1 - betas[1] ** n)
    return parameter - rate * unbiased_mean / (np.sqrt(unbiased_square) + epsilon), mean, square


@mistake("you have swapped them")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    beta_square, beta_mean = betas
    mean = beta_mean * mean + (1 - beta_mean) * gradient
    square = beta_square * square + (1 - beta_square) * gradient**2
    root = np.sqrt(square / (1 - beta_square**n)) + epsilon
    return parameter - rate * mean / (1 - beta_mean**n) / root, mean, square


@mistake("is corrected already; the next step would correct it again")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    mean = (betas[0] * mean + (1 - betas[0]) * gradient) / (1 - betas[0] ** n)
    square = (betas[1] * square + (1 - betas[1]) * gradient**2) / (1 - betas[1] ** n)
    return parameter - rate * mean / (np.sqrt(square) + epsilon), mean, square


@also_right
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    mean = mean + (1 - betas[0]) * (gradient - mean)
    square = square + (1 - betas[1]) * (gradient * gradient - square)
    root = np.sqrt(square) / np.sqrt(1 - betas[1] ** n) + epsilon
    return parameter - rate / (1 - betas[0] ** n) * mean / root, mean, square


@mistake("as if AdamW were Adam with an L2 penalty")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    return adam_step(parameter, gradient + decay * parameter, mean, square, n, rate, betas)


@mistake("the decay too is multiplied by the rate")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    updated, mean, square = adam_step(parameter, gradient, mean, square, n, rate, betas)
    return updated - decay * parameter, mean, square


@mistake("both are to start from the old parameter")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    updated, mean, square = adam_step(parameter, gradient, mean, square, n, rate, betas)
    return (1 - rate * decay) * updated, mean, square


@mistake("must hand them on")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    updated, mean, square = adam_step(parameter, gradient, mean, square, n, rate)
    return updated - rate * decay * parameter, mean, square


@also_right
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    return adam_step((1 - rate * decay) * parameter, gradient, mean, square, n, rate, betas)


@mistake("you made the whole matrix of length 1")
def orthogonalised(gradient):
    return gradient / np.linalg.norm(gradient)


@mistake("it takes both Y and Z")
def orthogonalised(gradient):
    return np.linalg.qr(gradient)[0] if gradient.shape[0] >= gradient.shape[1] else np.linalg.qr(gradient.T)[0].T


@mistake("the directions are no longer those of the gradient")
def orthogonalised(gradient):
    left, _, right = np.linalg.svd(gradient, full_matrices=False)
    return left @ right.T if left.shape == right.shape else left @ right


@mistake("you divided by each singular value twice")
def orthogonalised(gradient):
    left, values, right = np.linalg.svd(gradient, full_matrices=False)
    return left / values @ right


@also_right
def orthogonalised(gradient):
    """Newton-Schulz, without an SVD: each singular value u becomes 1.5 u - 0.5 u^3, again and again."""
    x = gradient / np.linalg.norm(gradient)
    for _ in range(40):
        x = 1.5 * x - 0.5 * x @ x.T @ x
    return x


@mistake("only its direction matters")
def largest_eigenvalue(product, start, n_rounds=100):
    v = start
    for _ in range(n_rounds):
        v = product(v)
    return float(v @ product(v) / (v @ v))


@mistake("the length of H v has no sign")
def largest_eigenvalue(product, start, n_rounds=100):
    v = start
    for _ in range(n_rounds):
        v = product(v)
        length = np.linalg.norm(v)
        v = v / length
    return float(length)


@mistake("a mix of all eigenvalues")
def largest_eigenvalue(product, start, n_rounds=100):
    return float(start @ product(start) / (start @ start))


@mistake("you build H column by column")
def largest_eigenvalue(product, start, n_rounds=100):
    values = np.linalg.eigvalsh(np.stack([product(each) for each in np.eye(len(start))]))
    return float(values[np.abs(values).argmax()])


@also_right
def largest_eigenvalue(product, start, n_rounds=100):
    v = start
    for _ in range(n_rounds):
        w = product(v)
        value, v = (v @ w) / (v @ v), w / np.abs(w).max()
    return value


@mistake("a position sees those after it")
def decoder_logits(tokens, decoder):
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            weights = exp(log_softmax(rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1])))
            return linear(join_heads(weights @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("the logits are NaN")
def decoder_logits(tokens, decoder):
    """A position does not see itself."""
    seen = np.tril(np.ones((tokens.shape[1], tokens.shape[1])), -1) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1])
            return linear(join_heads(exp(log_softmax(where(seen, scores, -np.inf))) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("you turn the values too")
def decoder_logits(tokens, decoder):
    seen = np.tril(np.ones((tokens.shape[1], tokens.shape[1]))) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (rotate(split_heads(linear(x, W), decoder.n_heads)) for W in (block.W_Q, block.W_K, block.W_V))
            scores = q @ k.T / math.sqrt(q.shape[-1])
            return linear(join_heads(exp(log_softmax(where(seen, scores, -np.inf))) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("even a token that never occurs must learn that it is unlikely")
def decoder_logits(tokens, decoder):
    seen = np.tril(np.ones((tokens.shape[1], tokens.shape[1]))) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1])
            return linear(join_heads(exp(log_softmax(where(seen, scores, -np.inf))) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return norm(x, decoder.final_gain) @ decoder.embedding.value.T


@also_right
def decoder_logits(tokens, decoder):
    """Head by head, each with its rows of the matrices, and a mask that is added."""
    T, H = tokens.shape[1], decoder.n_heads
    D = decoder.embedding.shape[1]
    K = D // H
    mask = np.triu(np.full((T, T), -1e30), 1)
    x = decoder.embedding[tokens]
    for block in decoder.blocks:
        n = norm(x, block.attention_gain)
        heads = []
        for h in range(H):
            rows = slice(h * K, (h + 1) * K)
            q, k, v = (n @ W[rows].T for W in (block.W_Q, block.W_K, block.W_V))
            q, k = (rotate(each.reshape(len(tokens), 1, T, K)).reshape(len(tokens), T, K) for each in (q, k))
            scores = exp(log_softmax(q @ k.T * K**-0.5 + mask))
            heads.append(scores @ v)
        x = x + concatenate(heads) @ block.W_O.T
        u = relu(norm(x, block.feed_forward_gain) @ block.W_1.T)
        x = x + (u * u) @ block.W_2.T
    return norm(x, decoder.final_gain) @ decoder.embedding.T


# ---- What first examples did not see ----


@mistake("changes what it is given")
def layer_norm(x, gain, epsilon=1e-5):
    x -= x.mean(axis=-1, keepdims=True)
    x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon)
    return gain * x


@mistake("changes what it is given")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """The cotangent is multiplied by the gain, for good."""
    std = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normal = (x - x.mean(axis=-1, keepdims=True)) / std
    to_gain = (cotangent * normal).reshape(-1, len(gain)).sum(axis=0)
    cotangent *= gain
    along_normal = normal * (cotangent * normal).mean(axis=-1, keepdims=True)
    return (cotangent - cotangent.mean(axis=-1, keepdims=True) - along_normal) / std, to_gain


@mistake("subtract the mean first, then square")
def layer_norm(x, gain, epsilon=1e-5):
    """E[x²] − E[x]²."""
    mean = x.mean(-1, keepdims=True)
    var = (x * x).mean(-1, keepdims=True) - mean**2
    return gain * (x - mean) / np.sqrt(var + epsilon)


@mistake("which size, or number of axes, is written as a number")
def layer_norm(x, gain, epsilon=1e-5):
    """Three axes or one."""
    if x.ndim == 1:
        return gain * (x - x.mean()) / np.sqrt(x.var() + epsilon)
    out = np.zeros(x.shape)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            out[b, t] = gain * (x[b, t] - x[b, t].mean()) / np.sqrt(x[b, t].var() + epsilon)
    return out


@also_right
def layer_norm(x, gain, epsilon=1e-5):
    """Transposed trick."""
    return gain * ((x.T - x.mean(-1).T) / np.sqrt(x.var(-1).T + epsilon)).T


@mistake("subtract the mean first, then square")
def layer_norm(x, gain, epsilon=1e-5):
    """Float64 var from squares of float."""
    D = x.shape[-1]
    s, ss = x.sum(-1, keepdims=True), (x**2).sum(-1, keepdims=True)
    return gain * (x - s / D) / np.sqrt((ss - s**2 / D) / D + epsilon)


@also_right
def layer_norm(x, gain, epsilon=1e-5):
    D = x.shape[-1]
    C = np.eye(D) - np.ones((D, D)) / D
    c = x @ C
    return c * gain / np.sqrt(np.einsum("...d,...d->...", c, c)[..., None] / D + epsilon)


@also_right
def layer_norm(x, gain, epsilon=1e-5):
    return np.apply_along_axis(lambda v: gain * (v - np.mean(v)) / math.sqrt(np.var(v) + epsilon), -1, x)


@mistake("that is axis -1")
def layer_norm(x, gain, epsilon=1e-05):
    """The mean along axis 1."""
    return gain * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon)


@mistake("which size, or number of axes, is written as a number")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Two leading axes only."""
    std = np.sqrt(x.var(-1, keepdims=True) + epsilon)
    n = (x - x.mean(-1, keepdims=True)) / std
    g = cotangent * gain
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / std, (cotangent * n).sum((0, 1))


@mistake("your σ is without ε")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Epsilon forgotten."""
    std = x.std(-1, keepdims=True)
    n = (x - x.mean(-1, keepdims=True)) / std
    g = cotangent * gain
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / std, (cotangent * n).reshape(
        -1, x.shape[-1]
    ).sum(0)


@mistake("you take ε to be 1e-05")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Epsilon fixed."""
    std = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    n = (x - x.mean(-1, keepdims=True)) / std
    g = cotangent * gain
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / std, (cotangent * n).reshape(
        -1, x.shape[-1]
    ).sum(0)


@mistake("a quotient of small differences")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Finite differences."""
    h = 1e-5
    to_x = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        a, b = x.copy(), x.copy()
        a[i] += h
        b[i] -= h
        to_x[i] = ((layer_norm(a, gain, epsilon) - layer_norm(b, gain, epsilon)) * cotangent).sum() / (2 * h)
    n = layer_norm(x, np.ones(x.shape[-1]), epsilon)
    return to_x, (cotangent * n).reshape(-1, x.shape[-1]).sum(0)


@mistake("a mean of squares minus the square of a mean")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """Variance by E[x²] − E[x]²."""
    m = x.mean(-1, keepdims=True)
    std = np.sqrt((x**2).mean(-1, keepdims=True) - m**2 + epsilon)
    n = (x - m) / std
    g = cotangent * gain
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / std, (cotangent * n).reshape(
        -1, x.shape[-1]
    ).sum(0)


@also_right
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    """By the tape."""
    from autodiff.operations import mean
    from autodiff.tape import vjp

    def f(x, gain):
        c = x - mean(x, -1, keepdims=True)
        return gain * c * (mean(c * c, -1, keepdims=True) + epsilon) ** -0.5

    return vjp(f, x, gain)[1](cotangent)


@mistake("where a gain is 0, you have NaN")
def pull_layer_norm(cotangent, x, gain, epsilon=1e-5):
    n = layer_norm(x, gain, epsilon) / gain
    g = cotangent * gain
    std = np.sqrt(x.var(-1, keepdims=True) + epsilon)
    to_x = (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / std
    return to_x, (cotangent * n).reshape(-1, x.shape[-1]).sum(0)


@mistake("changes what it is given")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    """In place."""
    x += attention(attention_norm(x))
    x += feed_forward(feed_forward_norm(x))
    return x


@mistake("both sublayers read through the first norm")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    """Both norms the same."""
    x = x + attention(attention_norm(x))
    return x + feed_forward(attention_norm(x))


@mistake("NumPy's functions add arrays alone")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    """Numpy: cuts the tape."""
    x = np.add(x, attention(attention_norm(x)))
    return np.add(x, feed_forward(feed_forward_norm(x)))


@also_right
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    for n, f in ((attention_norm, attention), (feed_forward_norm, feed_forward)):
        x = f(n(x)) + x
    return x


@mistake("for Tensors of lesson 1, which the decoder is made of, your block returns none")
def pre_norm_block(x, attention_norm, attention, feed_forward_norm, feed_forward):
    x = np.asarray(x) + attention(attention_norm(x))
    return x + feed_forward(feed_forward_norm(x))


@mistake("only the whole step is, and so ε counts 31.6 times as much")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """The paper's epsilon hat."""
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    alpha = rate * np.sqrt(1 - betas[1] ** n) / (1 - betas[0] ** n)
    return parameter - alpha * mean / (np.sqrt(square) + epsilon), mean, square


@mistake("changes what it is given")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """In place."""
    mean *= betas[0]
    mean += (1 - betas[0]) * gradient
    square *= betas[1]
    square += (1 - betas[1]) * gradient**2
    parameter -= rate * (mean / (1 - betas[0] ** n)) / (np.sqrt(square / (1 - betas[1] ** n)) + epsilon)
    return parameter, mean, square


@mistake("you take ε to be 1e-8")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """Epsilon fixed."""
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    return parameter - rate * mean / (1 - betas[0] ** n) / (np.sqrt(square / (1 - betas[1] ** n)) + 1e-8), mean, square


@mistake("nothing is corrected here")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """No correction after step 10."""
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    m, v = (mean / (1 - betas[0] ** n), square / (1 - betas[1] ** n)) if n < 10 else (mean, square)
    return parameter - rate * m / (np.sqrt(v) + epsilon), mean, square


@mistake("Adam's can be longer")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """Clips the step to the rate."""
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    step = mean / (1 - betas[0] ** n) / (np.sqrt(square / (1 - betas[1] ** n)) + epsilon)
    return parameter - rate * np.clip(step, -1, 1), mean, square


@also_right
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    b1, b2 = betas
    m, v = b1 * mean + (1 - b1) * gradient, b2 * square + (1 - b2) * np.square(gradient)
    root = math.sqrt(1 - b2**n)
    return parameter - rate / (1 - b1**n) * root * m / (np.sqrt(v) + root * epsilon), m, v


@mistake("step 5000 of parameters")
def adam_step(parameter, gradient, mean, square, n, rate, betas=(0.9, 0.999), epsilon=1e-8):
    mean = betas[0] * mean + (1 - betas[0]) * gradient
    square = betas[1] * square + (1 - betas[1]) * gradient**2
    a, b = (1 - betas[0] ** n, 1 - betas[1] ** n) if n <= 1000 else (1.0, 1.0)  # by then they hardly matter
    return parameter - rate * mean / a / (np.sqrt(square / b) + epsilon), mean, square


@mistake("you correct as in step 2")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    """Always the second step."""
    updated, mean, square = adam_step(parameter, gradient, mean, square, 2, rate, betas)
    return updated - rate * decay * parameter, mean, square


@mistake("changes what it is given")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    """In place shrink."""
    parameter *= 1 - rate * decay
    return adam_step(parameter, gradient, mean, square, n, rate, betas)


@mistake("at rate 0.")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    """Fixed decay 0.5."""
    updated, mean, square = adam_step(parameter, gradient, mean, square, n, rate, betas)
    return updated - 0.05 * parameter, mean, square


@also_right
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    b, c = betas
    mean, square = mean * b + gradient * (1 - b), square * c + gradient**2 * (1 - c)
    step = mean / (1 - b**n) / (np.sqrt(square / (1 - c**n)) + 1e-8) + decay * parameter
    return parameter - rate * step, mean, square


@mistake("not 1, 1 and 1")
def orthogonalised(gradient):
    """Muon's five rounds."""
    import torch

    from pellucid.training.muon import newton_schulz

    g = gradient if gradient.shape[0] <= gradient.shape[1] else gradient.T
    x = newton_schulz(torch.tensor(g)[None], torch.float64)[0].numpy()
    return x if g is gradient else x.T


@mistake("the smallest too, and whatever the size")
def orthogonalised(gradient):
    """Ten rounds of NS."""
    x = gradient / np.linalg.norm(gradient)
    for _ in range(12):
        x = 1.5 * x - 0.5 * x @ x.T @ x
    return x


@mistake("the smallest too, and whatever the size")
def orthogonalised(gradient):
    """Epsilon."""
    y, s, z = np.linalg.svd(gradient, full_matrices=False)
    return y * (s / (s + 1e-7)) @ z


@mistake("the smallest too, and whatever the size")
def orthogonalised(gradient):
    """Sets those above a fixed 0.01 to 1."""
    y, s, z = np.linalg.svd(gradient, full_matrices=False)
    return y * (s > 0.01) @ z


@mistake("the smallest too, and whatever the size")
def orthogonalised(gradient):
    """Only three singular values."""
    y, _, z = np.linalg.svd(gradient)
    return y[:, :3] @ z[:3]


@also_right
def orthogonalised(gradient):
    w, U = np.linalg.eigh(gradient @ gradient.T if gradient.shape[0] <= gradient.shape[1] else gradient.T @ gradient)
    R = U / np.sqrt(w) @ U.T
    return R @ gradient if gradient.shape[0] <= gradient.shape[1] else gradient @ R


@also_right
def orthogonalised(gradient):
    import scipy.linalg

    return scipy.linalg.polar(gradient)[0]


@mistake("whose last column is 0: your matrix has a NaN")
def orthogonalised(gradient):
    values, vectors = np.linalg.eigh(gradient.T @ gradient)  # of a wide matrix, some are 0 but for rounding
    return gradient @ vectors @ np.diag(1 / np.sqrt(np.abs(values))) @ vectors.T


@mistake("make as many as n_rounds says")
def largest_eigenvalue(product, start, n_rounds=100):
    """Ignores n_rounds."""
    v = start
    for _ in range(100):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(v @ product(v))


@mistake("counts each as much as it matters")
def largest_eigenvalue(product, start, n_rounds=100):
    """Ratio of first components."""
    v = start
    for _ in range(n_rounds):
        w = product(v)
        value = w[0] / v[0]
        v = w / np.linalg.norm(w)
    return float(value)


@mistake("counts each as much as it matters")
def largest_eigenvalue(product, start, n_rounds=100):
    """Mean of the ratios of components."""
    v = start
    for _ in range(n_rounds):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(np.mean(product(v) / v))


@mistake("make as many as n_rounds says")
def largest_eigenvalue(product, start, n_rounds=100):
    """Stops when the value changes little."""
    v, old = start / np.linalg.norm(start), 0.0
    for _ in range(n_rounds):
        w = product(v)
        new = v @ w
        if abs(new - old) < 1e-4:
            break
        old, v = new, w / np.linalg.norm(w)
    return float(new)


@mistake("n_rounds says how many")
def largest_eigenvalue(product, start, n_rounds=100):
    """Thousand rounds always."""
    v = start
    for _ in range(1000):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(v @ product(v))


@mistake("changes what it is given")
def largest_eigenvalue(product, start, n_rounds=100):
    """Writes into start."""
    v = start
    for _ in range(n_rounds):
        v[:] = product(v)
        v /= np.linalg.norm(v)
    return float(v @ product(v))


@mistake("your first product is not that of `start`")
def largest_eigenvalue(product, start, n_rounds=100):
    """Ones instead of start."""
    v = np.ones(len(start))
    for _ in range(n_rounds):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(v @ product(v))


@mistake("counts each as much as it matters")
def largest_eigenvalue(product, start, n_rounds=100):
    """Sign of the largest component only."""
    v = start
    for _ in range(n_rounds):
        w = product(v)
        value = np.linalg.norm(w) * np.sign(w.sum()) * np.sign(v.sum())
        v = w / np.linalg.norm(w)
    return float(value)


@also_right
def largest_eigenvalue(product, start, n_rounds=100):
    """Inf norm; ratio at the largest component."""
    v = start / np.abs(start).max()
    for _ in range(n_rounds):
        w = product(v)
        i = np.abs(v).argmax()
        value = w[i] / v[i]
        v = w / np.abs(w).max()
    return value


@also_right
def largest_eigenvalue(product, start, n_rounds=100):
    """Lanczos-free: exactly n products, Rayleigh of the last."""
    v = np.array(start, dtype=float)
    for _ in range(n_rounds - 1):
        v = product(v / np.sqrt(v @ v))
    v = v / np.sqrt(v @ v)
    return v @ product(v)


@mistake("what is below all numbers?")
def decoder_logits(tokens, decoder):
    """Mask of -30."""
    T = tokens.shape[1]
    mask = np.triu(np.full((T, T), -30.0), 1)
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1]) + mask
            return linear(join_heads(exp(log_softmax(scores)) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("what is below all numbers?")
def decoder_logits(tokens, decoder):
    """Where -1e4."""
    T = tokens.shape[1]
    seen = np.tri(T) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = where(seen, rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1]), -1e4)
            return linear(join_heads(exp(log_softmax(scores)) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("A softmax that takes e to the power of scores as they are")
def decoder_logits(tokens, decoder):
    """Naive softmax."""
    T = tokens.shape[1]
    seen = np.tri(T) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            e = exp(where(seen, rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1]), -np.inf))
            return linear(join_heads(e / e.sum(-1, keepdims=True) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("which size, or number of axes, is written as a number")
def decoder_logits(tokens, decoder):
    """5 positions, sqrt 4."""
    seen = np.tri(5) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = where(seen, rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1]), -np.inf)
            return linear(join_heads(exp(log_softmax(scores)) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("another decoder")
def decoder_logits(tokens, decoder):
    """Two blocks, 3 heads, 2."""
    seen = np.tri(tokens.shape[1]) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks[:2]:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), 3) for W in (block.W_Q, block.W_K, block.W_V))
            scores = where(seen, rotate(q) @ rotate(k).T / 2, -np.inf)
            return linear(join_heads(exp(log_softmax(scores)) @ v), block.W_O)

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@mistake("`.value` is a plain array, and the tape ends there")
def decoder_logits(tokens, decoder):
    """W_O without tape."""
    seen = np.tri(tokens.shape[1]) > 0
    x = decoder.embedding[tokens]
    for block in decoder.blocks:

        def attention(x, block=block):
            q, k, v = (split_heads(linear(x, W), decoder.n_heads) for W in (block.W_Q, block.W_K, block.W_V))
            scores = where(seen, rotate(q) @ rotate(k).T / math.sqrt(q.shape[-1]), -np.inf)
            return join_heads(exp(log_softmax(scores)) @ v) @ block.W_O.value.T

        x = x + attention(norm(x, block.attention_gain))
        x = x + linear(relu(linear(norm(x, block.feed_forward_gain), block.W_1)) ** 2, block.W_2)
    return linear(norm(x, decoder.final_gain), decoder.embedding)


@also_right
def decoder_logits(tokens, decoder):
    """Text by text."""

    def one(row):
        T = len(row)
        x = decoder.embedding[row[None]]
        for b in decoder.blocks:
            n = norm(x, b.attention_gain)
            q, k, v = (split_heads(n @ W.T, decoder.n_heads) for W in (b.W_Q, b.W_K, b.W_V))
            s = rotate(q) @ rotate(k).swap_axes(-1, -2) * (q.shape[-1] ** -0.5)
            w = exp(log_softmax(where(np.tri(T, dtype=bool), s, -1e9)))
            x = x + join_heads(w @ v) @ b.W_O.T
            u = relu(norm(x, b.feed_forward_gain) @ b.W_1.T)
            x = x + (u * u) @ b.W_2.T
        return norm(x, decoder.final_gain) @ decoder.embedding.T

    if len(tokens) == 1:
        return one(tokens[0])
    B, T = tokens.shape
    parts = [one(row).reshape(1, -1) for row in tokens]
    return concatenate(parts).reshape(B, T, -1)


@mistake("n_rounds says how many")
def largest_eigenvalue(product, start, n_rounds=100):
    """Half of the rounds, which are enough where there are a thousand."""
    v = start
    for _ in range(n_rounds // 2):
        v = product(v)
        v = v / np.linalg.norm(v)
    return float(v @ product(v))


@also_right
def largest_eigenvalue(product, start, n_rounds=100):
    """The length of H v, with the sign that v says."""
    v, value = start / np.linalg.norm(start), 0.0
    for _ in range(n_rounds):
        w = product(v)
        value = float(np.sign(v @ w) * np.linalg.norm(w))
        v = w / np.linalg.norm(w)
    return value


@mistake("a loop has no such limit")
def largest_eigenvalue(product, start, n_rounds=100):
    """Calls itself for each round."""
    v = start / np.linalg.norm(start)
    return float(v @ product(v)) if n_rounds <= 1 else largest_eigenvalue(product, product(v), n_rounds - 1)


@mistake("you write into what `product` returns")
def largest_eigenvalue(product, start, n_rounds=100):
    v = start
    for _ in range(n_rounds):
        v = product(v)
        v /= np.linalg.norm(v)
    return float(v @ product(v))


@also_right
def largest_eigenvalue(product, start, n_rounds=100):
    """The length that a vector of length 1 gets, and whether it was turned round."""
    v = start / np.linalg.norm(start)
    for _ in range(n_rounds):
        w = product(v)
        size = np.linalg.norm(w)
        sign = 1 if np.abs(w - size * v).max() < np.abs(w + size * v).max() else -1
        v = w / size
    return float(sign * size)


@also_right
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    """Adam's step from 0, added to what has shrunk."""
    step, mean, square = adam_step(np.zeros_like(parameter), gradient, mean, square, n, rate, betas)
    return parameter * (1 - rate * decay) + step, mean, square


@mistake("decay asks no gradient")
def adamw_step(parameter, gradient, mean, square, n, rate, decay, betas=(0.9, 0.999)):
    new, mean, square = adam_step(parameter, gradient, mean, square, n, rate, betas)
    return new - rate * decay * parameter * (gradient != 0), mean, square
