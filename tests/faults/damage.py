"""Ways to spoil a checkpoint, and to make its manifest fit the spoilt files, as an attacker would."""

import json
import struct
from hashlib import sha256
from pathlib import Path

from pellucid.checkpoint.step_directory import TENSOR_FILES, TEXT_FILES, manifest, manifest_line


def sign(directory: Path) -> None:
    """Writes the manifest that belongs to the files as they are now."""
    contents = {name: (directory / name).read_bytes() for name in (*TENSOR_FILES, *TEXT_FILES)}
    lines = [manifest_line(name, len(bytes_), sha256(bytes_).hexdigest()) for name, bytes_ in contents.items()]
    (directory / "manifest.json").write_bytes(manifest(lines))


def safetensors(header: object, data: bytes = b"") -> bytes:
    """A file of that format with this header: text as it is, anything else as JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def header_of(file: Path) -> tuple[dict[str, dict[str, object]], bytes]:
    """The header of a safetensors file, and the bytes of its tensors."""
    content = file.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8:end]), content[end:]


def flip(file: Path, position: int, bit: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(position)
        (byte,) = stream.read(1)
        stream.seek(position)
        stream.write(bytes([byte ^ 1 << bit]))
