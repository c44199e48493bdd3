"""torchrun starts all ranks again when one is lost, and keeps its store. Nothing said before may be heard again."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import TCPStore
from torch.multiprocessing.spawn import ProcessRaisedException

from pellucid.errors import LostProcessError
from pellucid.runtime import distributed
from pellucid.runtime.distributed import CONTINUE, World, connected, store_of_this_start, with_its_cause


@pytest.fixture
def server():
    return TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)


def start(server, size=3):
    """The worlds of one start of torchrun, whose ranks come at the same time."""

    def of_rank(rank):
        client = TCPStore("127.0.0.1", server.port, None, is_master=False)
        return World(rank, size, store=store_of_this_start(client, rank, size))

    with ThreadPoolExecutor(size) as ranks:
        return list(ranks.map(of_rank, range(size)))


def test_after_a_restart_no_old_message_is_heard(server):
    for checkpoint in ("", "step-00000005", "step-00000010"):
        first, *others = start(server)
        assert not any(world.store.check(["start"]) for world in (first, *others))
        first.announce("start", checkpoint)
        assert [world.wait_for("start") for world in others] == [checkpoint] * 2


def test_the_question_of_a_rank_that_was_lost_while_it_asked_is_answered_in_vain(server):
    TCPStore("127.0.0.1", server.port, None, is_master=False).set("question of rank 1", "asked before it was lost")
    first, *others = start(server)
    first.announce("start", "step-00000005")
    assert [world.wait_for("start") for world in others] == ["step-00000005"] * 2


def test_a_rank_that_is_lost_while_all_connect_is_one_line(monkeypatch):
    def refused(*arguments, **names):
        raise RuntimeError("Gloo connectFullMesh failed with timed out connecting: Connection refused")

    monkeypatch.setattr(distributed.dist, "init_process_group", refused)
    monkeypatch.setattr(World, "require_helpers", lambda world: None)
    with (
        pytest.raises(LostProcessError, match="it no longer answers"),
        connected(World(1, 2), distributed.torch.device("cpu")),
    ):
        pass


@pytest.mark.parametrize(
    ("last_line", "told"),
    [
        (
            f"pellucid.errors.LostProcessError: another process of this training: it no longer answers; {CONTINUE}",
            f"another process of this training: it no longer answers; {CONTINUE}",
        ),
        ("ValueError: a fault of its own", f"process 2 of 2: ValueError: a fault of its own; {CONTINUE}"),
    ],
    ids=["lost", "faulty"],
)
def test_a_helper_that_lost_this_process_too_is_no_cause(last_line, told):
    """As after both slept: each tells of the other, and neither is the cause."""

    class Helpers:
        def join(self, timeout, grace_period):
            raise ProcessRaisedException(f"-- Process 0 terminated\nTraceback\n{last_line}", 0, 1)

    lost = LostProcessError("another process of this training", "it no longer answers", CONTINUE)
    assert str(with_its_cause(lost, Helpers(), 2)) == told
