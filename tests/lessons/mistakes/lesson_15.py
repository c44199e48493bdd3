"""Mistakes in lesson 15, with the sentence meant for each; and second solutions."""

import numpy as np

from trying import also_right, mistake


@mistake("this is the mean of the means")
def average_gradient(gradients, counts):
    return sum(gradients) / len(gradients)


@mistake("the step is about n times too long")
def average_gradient(gradients, counts):
    return sum(gradients)


@mistake("this is the gradient of the *sum* of all losses")
def average_gradient(gradients, counts):
    return sum(count * gradient for count, gradient in zip(counts, gradients, strict=True))


@mistake("but then divided by the number of devices")
def average_gradient(gradients, counts):
    return sum(count * gradient for count, gradient in zip(counts, gradients, strict=True)) / len(counts)


@also_right
def average_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)


@mistake("if all devices send the same chunk in a round")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        received = pass_right([held[i][step] for i in range(n)])
        for i in range(n):
            held[i][step] += received[i]
    for step in range(n - 1):
        received = pass_right([held[i][step] for i in range(n)])
        for i in range(n):
            held[i][step] = received[i]
    return held


@mistake("each chunk is complete on one device only")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    return held


@mistake("in the second half you still add what arrives")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(2 * (n - 1)):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    return held


@mistake("whole arrays go round where one chunk is enough")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    travelling = held
    for _ in range(n - 1):
        travelling = pass_right(travelling)
        held = [own + other for own, other in zip(held, travelling, strict=True)]
    return held


@also_right
def ring_all_reduce(chunks, pass_right):
    """What travels is a partial sum: nothing is changed in place, and the chunks start one place further."""
    n = len(chunks)
    sums = np.zeros((n, *np.shape(chunks[0])))
    travelling = [chunks[i][(i + 1) % n] for i in range(n)]
    for step in range(n - 1):
        arrived = pass_right(travelling)
        travelling = [arrived[i] + chunks[i][(i - step) % n] for i in range(n)]
    for step in range(n):
        for i in range(n):
            sums[i][(i + 2 - step) % n] = travelling[i]
        if step < n - 1:
            travelling = pass_right(travelling)
    return sums


@mistake("you take the gradient at the newest parameters")
def stale_step(history, gradient, rate, delay):
    return history[-1] - rate * gradient(history[-1])


@mistake("you go back to the old parameters and step from there")
def stale_step(history, gradient, rate, delay):
    seen = history[max(len(history) - 1 - delay, 0)]
    return seen - rate * gradient(seen)


@mistake("you mix the gradients of all steps since then")
def stale_step(history, gradient, rate, delay):
    late = history[max(len(history) - 1 - delay, 0) :]
    return history[-1] - rate * sum(gradient(each) for each in late) / len(late)


@mistake("you take no step")
def stale_step(history, gradient, rate, delay):
    if len(history) <= delay:
        return history[-1]
    return history[-1] - rate * gradient(history[-1 - delay])


@mistake("max(0, a) + max(0, b) is not max(0, a + b)")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    parts = []
    for own in np.split(np.arange(x.shape[1]), n_devices):
        parts.append(np.maximum(0, x[:, own] @ W_1[:, own].T + b_1 / n_devices))
    return all_reduce(parts) @ W_2.T + b_2


@mistake("each of the 3 devices adds b_2")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    parts = []
    for own in np.split(np.arange(len(W_1)), n_devices):
        hidden = np.maximum(0, x @ W_1[own].T + b_1[own])
        parts.append(hidden @ W_2[:, own].T + b_2)
    return all_reduce(parts)


@mistake("but there were 2 sums")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    inputs = np.split(np.arange(x.shape[1]), n_devices)
    hidden = np.maximum(0, all_reduce([x[:, own] @ W_1[:, own].T for own in inputs]) + b_1)
    cut = np.split(np.arange(len(W_1)), n_devices)
    return all_reduce([hidden[:, own] @ W_2[:, own].T for own in cut]) + b_2


@mistake("but nothing was summed")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    cut = np.split(np.arange(len(W_1)), n_devices)
    hidden = np.concatenate([np.maximum(0, x @ W_1[own].T + b_1[own]) for own in cut], axis=1)
    return hidden @ W_2.T + b_2


@mistake("there is no loss yet to start from")
def pipeline_schedule(n_stages, n_micro):
    stage, micro = np.indices((n_stages, n_micro))
    return stage + micro, n_micro + (n_stages - 1 - stage) + micro - 1


@mistake("backward passes run from the last stage to the first")
def pipeline_schedule(n_stages, n_micro):
    stage, micro = np.indices((n_stages, n_micro))
    return stage + micro, (n_micro + n_stages - 1) + stage + micro


@mistake("hands it on only after slot")
def pipeline_schedule(n_stages, n_micro):
    _, micro = np.indices((n_stages, n_micro))
    return micro, 2 * n_micro - 1 - micro


@mistake("can begin with the next at once")
def pipeline_schedule(n_stages, n_micro):
    stage, micro = np.indices((n_stages, n_micro))
    start = 2 * n_stages * micro
    return start + stage, start + 2 * n_stages - 1 - stage


@also_right
def pipeline_schedule(n_stages, n_micro):
    """1F1B is as short."""
    return one_forward_one_backward(n_stages, n_micro)


@mistake("their *share* is of both together")
def bubble_share(n_stages, n_micro):
    return (n_stages - 1) / n_micro


@mistake("this is the waiting when a single batch goes through")
def bubble_share(n_stages, n_micro):
    return (n_stages - 1) / n_stages


@mistake("the share of slots in which a stage works")
def bubble_share(n_stages, n_micro):
    return n_micro / (n_micro + n_stages - 1)


@mistake("the waiting of both halves, but the slots of one")
def bubble_share(n_stages, n_micro):
    return 2 * (n_stages - 1) / (n_micro + n_stages - 1)


@also_right
def bubble_share(n_stages, n_micro):
    n_slots = n_stages * (np.max(pipeline_schedule(n_stages, n_micro)) + 1)
    return 1 - 2 * n_stages * n_micro / n_slots


@mistake("you divide everything by 8")
def bytes_per_device(n_parameters, n_devices, stage):
    return 16 * n_parameters / (n_devices if stage else 1)


@mistake("you count three numbers for each parameter")
def bytes_per_device(n_parameters, n_devices, stage):
    return sum(4 * n_parameters / (n_devices if i < stage else 1) for i in range(3))


@mistake("stage 2 includes stage 1")
def bytes_per_device(n_parameters, n_devices, stage):
    cut = {1: [1], 2: [2], 3: [1, 2, 3]}.get(stage, [])
    return sum(4 * n_parameters * n / (n_devices if i in cut else 1) for i, n in ((1, 2), (2, 1), (3, 1)))


@mistake("the first to be sharded are the moments")
def bytes_per_device(n_parameters, n_devices, stage):
    numbers = [1, 1, 2]
    return sum(4 * n_parameters * n / (n_devices if i < stage else 1) for i, n in enumerate(numbers))


# ---- Found later: wrong answers that were once accepted, and unusual right ones ----


@mistake("and a weight of shape")
def average_gradient(gradients, counts):
    counts = np.maximum(counts, 1)  # so that nothing is divided by 0
    return np.tensordot(counts, np.stack(gradients), axes=1) / counts.sum()


@mistake("the shape is")
def average_gradient(gradients, counts):
    counts = np.array(counts)[:, None, None]
    return (counts * np.array(gradients)).sum(axis=0) / counts.sum()


@also_right
def average_gradient(gradients, counts):
    return np.tensordot(np.array(counts) / sum(counts), np.stack(gradients), axes=1)


@mistake("A gradient may have any shape")
def average_gradient(gradients, counts):
    return np.dot(np.asarray(counts, dtype=float), np.asarray(gradients)) / sum(counts)


@mistake("the memory of another machine it cannot see")
def ring_all_reduce(chunks, pass_right):
    """Sends, but does not listen: in the first half it reads what its neighbour holds."""
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        pass_right([held[i][(i - step) % n] for i in range(n)])
        read = [held[i - 1][(i - 1 - step) % n].copy() for i in range(n)]
        for i in range(n):
            held[i][(i - 1 - step) % n] += read[i]
    for step in range(n - 1):
        received = pass_right([held[i][(i + 1 - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - step) % n] = received[i]
    return held


@mistake("without the wire")
def ring_all_reduce(chunks, pass_right):
    """In the second half it reads what its neighbour holds."""
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    done = [held[i][(i + 1) % n].copy() for i in range(n)]
    for _ in range(n - 1):
        pass_right([held[i][(i + 1) % n] for i in range(n)])
    for i in range(n):
        for j in range(n):
            held[i][(j + 1) % n] = done[j]
    return held


@mistake("1 device with 1 chunk")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(max(n - 1, 1)):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    for step in range(n - 1):
        received = pass_right([held[i][(i + 1 - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - step) % n] = received[i]
    return held


@mistake("devices with")
def ring_all_reduce(chunks, pass_right):
    n = len(chunks)
    held = [np.array(each) for each in chunks]
    for step in range(n - 1):
        received = pass_right([held[i][(i - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - step) % n] += received[i]
    for step in range(min(n, 4) - 1):
        received = pass_right([held[i][(i + 1 - step) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - step) % n] = received[i]
    return held


@also_right
def ring_all_reduce(chunks, pass_right):
    """Lists, and a note of which chunk is in each device's hand."""
    n = len(chunks)
    have = [[list(chunk) for chunk in of_device] for of_device in chunks]
    hand = list(range(n))
    for half in ("add", "keep"):
        for _ in range(n - 1):
            received = pass_right([np.array(have[i][hand[i]]) for i in range(n)])
            hand = [(chunk - 1) % n for chunk in hand]
            for i in range(n):
                own = have[i][hand[i]]
                have[i][hand[i]] = [a + b if half == "add" else b for a, b in zip(own, received[i], strict=True)]
    return [np.array(each) for each in have]


@mistake("you write into `chunks`")
def ring_all_reduce(chunks, pass_right):
    """A new list of the same arrays."""
    n = len(chunks)
    held = list(chunks)
    for r in range(n - 1):
        got = pass_right([held[i][(i - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - r) % n] += got[i]
    for r in range(n - 1):
        got = pass_right([held[i][(i + 1 - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - r) % n] = got[i]
    return held


@mistake("device 0 receives something in the last round")
def ring_all_reduce(chunks, pass_right):
    """Device 0's result for all."""
    n = len(chunks)
    held = [np.array(c, dtype=float) for c in chunks]
    for r in range(n - 1):
        got = pass_right([held[i][(i - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - r) % n] += got[i]
    for r in range(n - 1):
        got = pass_right([held[i][(i + 1 - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - r) % n] = got[i]
    return [held[0].copy() for _ in held]


@mistake("in the last round")
def ring_all_reduce(chunks, pass_right):
    """Finished chunks are read where they lie."""
    n = len(chunks)
    held = [np.array(c, dtype=float) for c in chunks]
    for r in range(n - 1):
        got = pass_right([held[i][(i - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - 1 - r) % n] += got[i]
    for r in range(n - 1):
        got = pass_right([held[i][(i + 1 - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - r) % n] = held[((i - r) % n - 1) % n][(i - r) % n]
    return held


@also_right
def ring_all_reduce(chunks, pass_right):
    """Device i begins with chunk i + 1."""
    n = len(chunks)
    held = [np.array(c, dtype=float) for c in chunks]
    for r in range(n - 1):
        got = pass_right([held[i][(i - r + 1) % n] for i in range(n)])
        for i in range(n):
            held[i][(i - r) % n] += got[i]
    for r in range(n - 1):
        got = pass_right([held[i][(i + 2 - r) % n] for i in range(n)])
        for i in range(n):
            held[i][(i + 1 - r) % n] = got[i]
    return held


@mistake("you shorten the parameters")
def stale_step(history, gradient, rate, delay):
    old = history[-1 - delay :][0]
    return history[-1] - gradient(rate * old)


@mistake("you computed the gradient")
def stale_step(history, gradient, rate, delay):
    slopes = [gradient(each) for each in history]
    return history[-1] - rate * slopes[max(len(history) - 1 - delay, 0)]


@also_right
def stale_step(history, gradient, rate, delay):
    return history[-1] + gradient(history[-delay - 1 :][0]) * -rate


@mistake("you changed the weights or the inputs")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    b_2 /= n_devices  # each device adds its share
    parts = []
    for own in np.split(np.arange(len(W_1)), n_devices):
        parts.append(np.maximum(0, x @ W_1[own].T + b_1[own]) @ W_2[:, own].T + b_2)
    return all_reduce(parts)


@mistake("one sum over")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    """Four hidden numbers on each device, however many there are."""
    parts = []
    for own in np.split(np.arange(len(W_1)), range(4, len(W_1), 4)):
        parts.append(np.maximum(0, x @ W_1[own].T + b_1[own]) @ W_2[:, own].T)
    return all_reduce(parts) + b_2


@also_right
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    """Dealt out like cards, and each device adds its share of b_2."""
    parts = []
    for device in range(n_devices):
        own = slice(device, None, n_devices)
        parts.append(np.maximum(0, x @ W_1[own].T + b_1[own]) @ W_2[:, own].T + b_2 / n_devices)
    return all_reduce(parts)


@mistake("right even if `all_reduce` returns something else")
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    cut = zip(np.split(W_1, n_devices), np.split(b_1, n_devices), np.split(W_2, n_devices, axis=1), strict=True)
    parts = [np.maximum(0, x @ W.T + b) @ back.T for W, b, back in cut]
    all_reduce(parts)
    return sum(parts) + b_2


@also_right
def tensor_parallel_mlp(x, W_1, b_1, W_2, b_2, n_devices, all_reduce):
    """The mean of a number and its size is max(0, ·)."""
    cut = zip(np.split(W_1, n_devices), np.split(b_1, n_devices), np.split(W_2, n_devices, axis=1), strict=True)
    hidden = [(x @ W.T + b, back) for W, b, back in cut]
    return all_reduce([(np.abs(each) + each) @ back.T for each, back in hidden]) / 2 + b_2


@mistake("slots are whole numbers")
def pipeline_schedule(n_stages, n_micro):
    stage, micro = np.indices((n_stages, n_micro))
    backward = (n_micro + n_stages - 1) + (n_stages - 1 - stage) + micro
    return stage + micro, backward - 0.5 * (micro > 0) * (stage > 0)


@mistake("are enough")
def pipeline_schedule(n_stages, n_micro):
    stage, micro = np.indices((n_stages, n_micro))
    return stage + micro, 2 * n_stages + n_micro - 2 - stage + micro + max(0, n_stages - 4)


@also_right
def pipeline_schedule(n_stages, n_micro):
    """The same way back: last in, first out."""
    forward = np.add.outer(np.arange(n_stages), np.arange(n_micro))
    return forward, 2 * (n_micro + n_stages - 1) - 1 - forward


@mistake("whole numbers with a point")
def pipeline_schedule(n_stages, n_micro):
    """Slots are floats."""
    i, j = np.arange(n_stages)[:, None], np.arange(n_micro)
    return (i + j) * 1.0, (n_micro + 2 * n_stages - 2 - i + j) * 1.0


@also_right
def pipeline_schedule(n_stages, n_micro):
    """Forward in every second slot, back in those between."""
    i, j = np.arange(n_stages)[:, None], np.arange(n_micro)
    return i + 2 * j, 2 * n_stages - 1 - i + 2 * j


@mistake("the bubble of")
def bubble_share(n_stages, n_micro):
    return (n_stages - 1) / (max(n_micro, n_stages) + n_stages - 1)


@also_right
def bubble_share(n_stages, n_micro):
    n_slots = n_stages * (n_micro + n_stages - 1)
    return (n_slots - n_stages * n_micro) / n_slots


@mistake("you say that nobody waits")
def bubble_share(n_stages, n_micro):
    return 0.0 if n_micro == 1 else (n_stages - 1) / (n_micro + n_stages - 1)


@mistake("you round")
def bytes_per_device(n_parameters, n_devices, stage):
    own = -(-n_parameters // n_devices)
    return 4 * sum(n * (own if i < stage else n_parameters) for i, n in enumerate((2, 1, 1)))


@mistake("you round")
def bytes_per_device(n_parameters, n_devices, stage):
    sharded = (0, 8, 12, 16)[stage]
    return n_parameters * (16 - sharded) + n_parameters * sharded // n_devices


@mistake("on 1 device, stage 1")
def bytes_per_device(n_parameters, n_devices, stage):
    return n_parameters * (16, 9, 5.5, 2)[stage]


@also_right
def bytes_per_device(n_parameters, n_devices, stage):
    sharded = (0, 8, 12, 16)[stage]
    return n_parameters * (16 - sharded + sharded / n_devices)
