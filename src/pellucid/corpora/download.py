"""Downloads a file once, and accepts it only with the SHA-256 in the config."""

import os
import sys
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from filelock import FileLock
from tqdm import tqdm

from pellucid.errors import DataError, InputOutputError
from pellucid.files import sha256

TIMEOUT_SECONDS = 30
BLOCK_BYTES = 1 << 16


def download(url: str, digest: str, folder: Path) -> Path:
    """The path of the file in `folder`; downloaded, through the environment's proxies, if it is missing.

    After a broken connection the part is kept as *.part and completed the next time. Raises DataError if the server
    has no such file or a different one, InputOutputError if it cannot be reached or stops early.
    """
    file = folder / f"{digest[:12]}-{Path(urlsplit(url).path).name or 'download'}"
    if file.is_file() and sha256(file) == digest:
        return file
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.part")
    with FileLock(f"{file}.lock"):
        if not (file.is_file() and sha256(file) == digest):  # another process may have fetched it meanwhile
            _fetch(url, part)
            if (actual := sha256(part)) != digest:
                part.unlink()
                raise DataError(url, f"its SHA-256 is {actual}, not {digest}", "check corpus.download, or try again")
            os.replace(part, file)
    return file


def _fetch(url: str, part: Path) -> None:
    """Append the missing bytes to `part`, or start over if the server sends the whole file again."""
    n_before = part.stat().st_size if part.exists() else 0
    print(f"{'continuing the download of' if n_before else 'downloading'} {url}", file=sys.stderr, flush=True)
    request = Request(url, headers={"Range": f"bytes={n_before}-"} if n_before else {})
    by_hand = "check the connection, or download it yourself and give corpus.files='[FILE]'"
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            n_before = n_before if response.status == 206 else 0
            length = response.headers["Content-Length"]
            n_bytes = None if length is None else n_before + int(length)
            with (
                part.open("ab" if n_before else "wb") as file,
                tqdm(total=n_bytes, initial=n_before, unit="B", unit_scale=True, disable=None) as bar,
            ):
                while block := response.read(BLOCK_BYTES):
                    file.write(block)
                    bar.update(len(block))
    except HTTPError as error:
        error.close()
        if error.code != 416:  # 416: no bytes are missing; `part` is complete, or of another file
            what = f"the server answers {error.code} {error.reason}"
            raise DataError(url, what, "check corpus.download.url, or give corpus.files='[FILE]'") from None
        return
    except (URLError, HTTPException, ConnectionError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        what = f"cannot be downloaded ({getattr(reason, 'strerror', None) or reason})"
        raise InputOutputError(url, what, by_hand) from None
    if n_bytes is not None and part.stat().st_size < n_bytes:
        what = f"the connection ended after {part.stat().st_size:,} of {n_bytes:,} bytes"
        raise InputOutputError(url, what, "run it again: it continues from there")
