"""Mistakes in lesson 8, with the sentence meant for each; and second solutions."""

import math

import numpy as np

from lesson_01 import concatenate, exp, log_softmax, relu, where
from lesson_08 import adam_step, join_heads, layer_norm, linear, norm, pre_norm_block, rotate, split_heads
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
