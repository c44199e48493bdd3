"""Devices that send numbers around a ring, and stages that wait for each other: acted out, one event after another."""


def ring_all_reduce(numbers):
    """`numbers[i][j]` is chunk j of device i, as many chunks as devices. Afterwards each device has the sums.

    Returns how many chunks each device sent. First every chunk collects its sum on a way round the ring, then each
    sum goes round once more.
    """
    n = len(numbers)
    sent = [0] * n
    for step in range(2 * (n - 1)):
        is_summing = step < n - 1
        messages = [(i, (i - step) % n, numbers[i][(i - step) % n]) for i in range(n)]  # all at the same time
        for i, chunk, value in messages:
            right = (i + 1) % n
            numbers[right][chunk] = numbers[right][chunk] + value if is_summing else value
            sent[i] += 1
    return sent


def one_forward_one_back(stages, micro_batches, forward, backward):
    """Each stage fills the pipeline with forward passes, then takes turns (Narayanan et al. 2021, figure 4).

    Returns when all is done, and how many micro-batches each stage held at most between their two passes.
    """
    ends, free_at = {}, [0] * stages
    turns = [_turns(min(stages - 1 - stage, micro_batches), micro_batches) for stage in range(stages)]
    while any(turns):
        for stage, to_do in enumerate(turns):
            if to_do and (ready := _ready_at(*to_do[0], stage, stages, ends)) is not None:
                way, i = to_do.pop(0)
                free_at[stage] = max(free_at[stage], ready) + (forward if way == "forward" else backward)
                ends[way, i, stage] = free_at[stage]
    return max(free_at), [_most_held(min(stages - 1 - stage, micro_batches), micro_batches) for stage in range(stages)]


def _turns(n_ahead, micro_batches):
    """The work of a stage, in order: so many forward passes ahead, then one forward, one back, while there are any."""
    forwards = [("forward", i) for i in range(micro_batches)]
    order = forwards[:n_ahead]
    for i in range(micro_batches):
        order += forwards[n_ahead + i : n_ahead + i + 1]
        order.append(("backward", i))
    return order


def _ready_at(way, i, stage, stages, ends):
    """When what it needs from a neighbour is there; None if that is not known yet."""
    if way == "forward":
        return 0 if stage == 0 else ends.get((way, i, stage - 1))
    return ends.get(("forward", i, stage) if stage == stages - 1 else (way, i, stage + 1))


def _most_held(n_ahead, micro_batches):
    held = most = 0
    for way, _ in _turns(n_ahead, micro_batches):
        held += 1 if way == "forward" else -1
        most = max(most, held)
    return most
