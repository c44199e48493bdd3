"""Downloads, from a server in this process."""

import hashlib
import http.server
import re
import threading
from pathlib import Path

import pytest

from pellucid.corpora import download as module
from pellucid.corpora.download import download
from pellucid.errors import DataError, InputOutputError

CONTENT = "".join(f"The fox said {n}.\n" for n in range(20_000)).encode()
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT at /a.txt and notes what it is asked for."""

    content = CONTENT
    stops_after = None
    knows_ranges = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.url = f"http://127.0.0.1:{self.server_port}/a.txt"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, range_ = self.server, self.headers["Range"]
        server.asked.append(range_)
        start = int(re.fullmatch(r"bytes=(\d+)-", range_)[1]) if range_ and server.knows_ranges else 0
        if self.path != "/a.txt":
            self.send_error(404)
        elif start >= len(server.content):
            self.send_error(416)
        else:
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(server.content) - start))
            self.end_headers()
            self.wfile.write(server.content[start : server.stops_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


FILE = f"{DIGEST[:12]}-a.txt"


def test_a_file_is_fetched_once(server, tmp_path, capsys):
    file = download(server.url, DIGEST, tmp_path / "downloads")
    assert file.read_bytes() == CONTENT
    assert names(tmp_path / "downloads") == [FILE]
    assert capsys.readouterr().err == f"downloading {server.url}\n"
    assert download(server.url, DIGEST, tmp_path / "downloads") == file
    assert server.asked == [None]
    assert capsys.readouterr().err == ""


def test_another_file_than_the_config_means_is_refused_and_not_kept(server, tmp_path):
    server.content = CONTENT[:-1]
    with pytest.raises(DataError, match=f"a.txt: its SHA-256 is .*, not {DIGEST}; check corpus.download"):
        download(server.url, DIGEST, tmp_path)
    assert names(tmp_path) == []


def test_a_file_that_has_changed_since_is_fetched_again(server, tmp_path):
    file = download(server.url, DIGEST, tmp_path)
    file.write_bytes(CONTENT[:-1])
    assert download(server.url, DIGEST, tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_one_clear_line(server, tmp_path):
    with pytest.raises(DataError, match="b.txt: the server answers 404 Not Found; check corpus.download.url"):
        download(server.url.replace("a.txt", "b.txt"), DIGEST, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_download_that_was_cut_off_is_completed(server, tmp_path, capsys, knows_ranges):
    server.stops_after = 100_000
    with pytest.raises(InputOutputError, match="ended after 100,000 of 388,890 bytes; run it again"):
        download(server.url, DIGEST, tmp_path)
    assert names(tmp_path) == [f"{FILE}.part"]
    server.stops_after, server.knows_ranges = None, knows_ranges
    assert download(server.url, DIGEST, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == [FILE]
    assert server.asked == [None, "bytes=100000-"]
    assert f"continuing the download of {server.url}\n" in capsys.readouterr().err


def test_a_process_that_was_killed_before_the_last_rename_has_fetched_all(server, tmp_path):
    (tmp_path / f"{FILE}.part").write_bytes(CONTENT)
    assert download(server.url, DIGEST, tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]


def test_a_part_of_something_else_is_given_up(server, tmp_path):
    (tmp_path / f"{FILE}.part").write_bytes(b"?" * len(CONTENT))
    with pytest.raises(DataError, match="its SHA-256 is .* or try again"):
        download(server.url, DIGEST, tmp_path)
    assert download(server.url, DIGEST, tmp_path).read_bytes() == CONTENT


def test_without_a_connection_one_line_says_what_to_do(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(
        InputOutputError, match=r"cannot be downloaded \(Connection refused\); .*corpus.files='\[FILE\]'"
    ):
        download(server.url, DIGEST, tmp_path)
    assert names(tmp_path) == []


def test_a_server_that_falls_silent_is_not_waited_for(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.2)
    silent = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _: silent.wait(5))
    with pytest.raises(InputOutputError, match=r"cannot be downloaded \(timed out\)"):
        download(server.url, DIGEST, tmp_path)
    silent.set()


@pytest.fixture
def downloading(workplace: Path, server):
    """The tiny run, with its corpus on the server."""
    server.content = (workplace / "corpus.txt").read_bytes()
    (workplace / "corpus.txt").rename(workplace / "mine.txt")
    digest = hashlib.sha256(server.content).hexdigest()
    config = (workplace / "tiny.yaml").read_text()
    config = config.replace("files: [corpus.txt]", f"download: {{url: '{server.url}', sha256: {digest}}}")
    (workplace / "tiny.yaml").write_text(config)
    return server


def test_a_config_with_a_download_is_prepared_and_equals_one_with_the_file(downloading, pellucid):
    prepared = pellucid("prepare", "tiny.yaml")
    assert (prepared.exit_code, len(downloading.asked)) == (0, 1), prepared.stderr
    assert [path.name[13:] for path in Path("data/downloads").glob("*.txt")] == ["a.txt"]
    with_file = pellucid("prepare", "tiny.yaml", "corpus.files=[mine.txt]")
    assert with_file.stdout == prepared.stdout
    assert len(downloading.asked) == 1


def test_what_a_run_costs_is_counted_without_the_text_unless_characters_make_the_vocabulary(downloading, pellucid):
    assert pellucid("cost", "tiny.yaml", "--json").exit_code == 0
    assert downloading.asked == []
    counted = pellucid("cost", "tiny.yaml", "tokenizer={type: char}", "--json")
    assert counted.exit_code == 0
    assert f"downloading {downloading.url}" in counted.stderr
