"""Work for each process of a test: our ring all-reduce beside torch's, over many lengths and 2, 3 and 4 processes."""

import torch
import torch.distributed as dist
from parallel_tensor import ring_all_reduce


def check(lengths):
    """The bytes that this process sent, by the number of processes and the length."""
    rank, bytes_sent = dist.get_rank(), {}
    for n in range(2, dist.get_world_size() + 1):
        group = dist.new_group(range(n))  # every process has to call it, also one that is not in the group
        for length in lengths if rank < n else ():
            parts = torch.Generator().manual_seed(100 * length + rank)
            whole_numbers = torch.randint(-(2**40), 2**40, (length,), generator=parts)
            sent = same_sum(whole_numbers, group, tolerance=0)
            bytes_sent[f"{n} processes, {length} numbers"] = sent
            same_sum(torch.randn(length, generator=parts, dtype=torch.float64), group, tolerance=1e-15 * n)
        if rank < n:
            same_sum(torch.randn(2, 3, 5, generator=parts), group, tolerance=1e-6)  # any shape
            same_bits_everywhere(torch.randn(101, generator=parts), group)
    return bytes_sent


def same_sum(x, group, tolerance):
    ours, theirs = x.clone(), x.clone()
    sent = ring_all_reduce(ours, group)
    dist.all_reduce(theirs, group=group)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=8 * tolerance)
    return sent


def same_bits_everywhere(x, group):
    """Each chunk is summed in one process and copied from there: no two processes can differ by a rounding."""
    ring_all_reduce(x, group)
    copies = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(copies, x, group=group)
    assert all(torch.equal(copy, x) for copy in copies)


def fail_in_process_1():
    """Process 0 waits for process 1 in vain."""
    if dist.get_rank() == 1:
        raise ValueError("as a test wants it")
    dist.barrier()
