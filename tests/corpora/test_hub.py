"""The hub is asked once whether it answers. If it does not, that is said at once, in one line."""

import http.server
import logging
import threading

import datasets
import pytest
from huggingface_hub import constants

from pellucid.corpora import hub
from pellucid.corpora.hugging_face import HuggingFaceCorpus
from pellucid.errors import InputOutputError

NOBODY = "http://127.0.0.1:9"  # where no server listens


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def online(monkeypatch, tmp_path):
    for module in (datasets.config, constants):
        monkeypatch.setattr(module, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", NOBODY)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)


def flags():
    return constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE


def test_whoever_says_anything_answers(monkeypatch):
    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert hub.answers()
        with hub.asked_once():
            assert not any(flags())
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert not hub.answers()
        server.shutdown()


def test_of_a_hub_that_does_not_answer_only_what_was_downloaded_before_is_read(caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    assert not hub.answers()
    with hub.asked_once():
        assert all(flags())
    asked = []
    monkeypatch.setattr("huggingface_hub.utils._http.http_backoff", lambda *each, **_: asked.append(each))
    said = r"corpus.path someone/stories: cannot read split train: Couldn't reach .*; check the network and run it "
    with pytest.raises(InputOutputError, match=said):
        list(HuggingFaceCorpus("someone/stories").pieces("train"))
    assert asked == caplog.messages == []
    assert not any(flags()), "later it may answer"
