"""What decoders that are not ours make of .tosa files: flatc and tosa_serializer, both shipped by tosa-tools."""

import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

_TOOLS = metadata.distribution("tosa-tools")
FLATC, SCHEMA = (str(_TOOLS.locate_file(f"bin/{name}")) for name in ("flatc", "tosa.fbs"))


def flatc_json(files: Sequence[bytes], folder: Path) -> list[str]:
    """Each file as JSON text, by the schema compiler."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.tosa" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    command = [FLATC, "--json", "--strict-json", "--raw-binary", "-o", str(folder), SCHEMA, "--", *map(str, paths)]
    subprocess.run(command, check=True, capture_output=True)
    return [path.with_suffix(".json").read_text(encoding="utf-8") for path in paths]


def flatc_binary(text: str, folder: Path) -> bytes:
    """The file that the schema compiler makes of JSON text."""
    source = folder / "source.json"
    source.write_text(text, encoding="utf-8")
    subprocess.run([FLATC, "--binary", "-o", str(folder), SCHEMA, str(source)], check=True, capture_output=True)
    return source.with_suffix(".tosa").read_bytes()


def serializer_bytes(content: bytes, folder: Path) -> bytes:
    """The file as tosa_serializer writes it again, from what it has read: equal for files it sees no difference in."""
    import tosa_serializer

    folder.mkdir(exist_ok=True)
    path = folder / "serializer.tosa"
    path.write_bytes(content)
    serializer = tosa_serializer.TosaSerializer()
    assert serializer.loadTosaFlatbuffer(str(path))
    return bytes(serializer.serialize())
