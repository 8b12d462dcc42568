"""Sources: what a declared source is (files, folders, a database table, rows), how text files are encoded, how rows are
written, and the fingerprint of all that a source holds."""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import os
import re
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from deniable.engines.base import normalize_names
from deniable.errors import DataError, MissingExtra, ParameterError, Place, nearest
from deniable.policy.schema import find_codec, refuse_secret
from deniable.storage import ROW_ENDINGS, escape_formula, storage_errors, whole_file, write_whole

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class Format(StrEnum):
    """The file formats that can be read."""

    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    DUCKDB = "duckdb"


SUFFIXES = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".txt": Format.CSV,
    ".data": Format.CSV,
    ".dat": Format.CSV,
    ".csv.gz": Format.CSV,
    ".tsv.gz": Format.CSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".duckdb": Format.DUCKDB,
    ".ddb": Format.DUCKDB,
    ".db": Format.DUCKDB,
}
_ELSEWHERE = {"postgresql": "psycopg", "postgres": "psycopg", "spark": "pyspark", "+adbc": "adbc_driver_manager"}
_SCHEME = re.compile(r"^([a-z][a-z0-9+]+):(?!\\)(.*)$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one source, sorted by name, all of one format; `table` is named inside a DuckDB file."""

    format: Format
    paths: tuple[Path, ...]
    table: str | None = None
    named: tuple[Path, ...] = ()
    """The names by which the files were found; links may lead from there to other files later."""

    @property
    def has_moved(self) -> bool:
        """Whether the names by which the files were found lead elsewhere now."""
        pairs = zip(self.named, self.paths, strict=True)
        return any(name != path and os.path.realpath(name) != str(path) for name, path in pairs)

    @property
    def title(self) -> str:
        """How messages call the source: its file, or its folder and how many files are in it."""
        first = self.paths[0]
        return f"'{first.name}'" if len(self.paths) == 1 else f"'{first.parent.name}' ({len(self.paths)} files)"


def resolve_source(source: str | Path, root: Path) -> Files:
    """The files that a declared source means; relative paths start at `root`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "people.csv").write_text("name")
    ...     resolve_source("people.csv", Path(folder)).format
    <Format.CSV: 'csv'>
    """
    refuse_secret(source)
    text, forced = _split_scheme(str(source))
    path, table = _split_table(root / Path(text).expanduser(), forced)
    if path.is_dir():
        return _list_folder(path)
    if path.exists():
        return Files(forced or format_of(path), (_require_regular(path),), table, (path.absolute(),))
    if glob.has_magic(str(path)):
        return _require_one_format(sorted(Path(match) for match in glob.glob(str(path))), f"the pattern '{path.name}'")
    raise DataError(f"there is no file or folder '{path}'", remedy="Correct the source, or put the file there")


def keep_copy(source: str | Path, root: Path, folder: Path) -> str:
    """A source whose files are copied into a folder of its own, which is made once; what to attach instead.

    The folder appears when all of it is written; whoever comes second takes what is there, and the source itself is not
    looked at again.
    """
    folder = Path(os.path.abspath(folder))
    with storage_errors(folder):
        if not folder.exists():
            files = resolve_source(source, root)
            part = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
            try:
                (part / "files").mkdir(mode=0o700, parents=True)
                write_whole(part / "source.txt", _copy_files(files, part / "files").encode())
                with suppress(OSError):  # another process was first
                    part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        scheme, _, name = (folder / "source.txt").read_text(encoding="utf-8").partition(":")
        os.utime(folder.parent)  # which epochs were used last decides which copies are kept
    return f"{scheme}:{folder / name}" if scheme else str(folder / name)


def _copy_files(files: Files, folder: Path) -> str:
    """Copy all files; how the copies are attached: a format, and a path below the parent of the folder."""
    before = [stamp_file(path) for path in files.paths]
    # Numbers keep the order of files, and apart what has one name in two folders.
    names = [f"{place:06}-{path.name}" for place, path in enumerate(files.paths)]
    names = names if len(names) > 1 else [files.paths[0].name]
    for path, name in zip(files.paths, names, strict=True):
        with path.open("rb") as held, whole_file(folder / name) as copy:
            shutil.copyfileobj(held, copy, BLOCK)
    if before != [stamp_file(path) for path in files.paths] or Path(f"{files.paths[0]}.wal").exists():
        raise DataError(
            f"{files.title} is being written to, and cannot be copied", remedy="Wait until it is complete, then go on"
        )
    return (
        ":files/*"
        if len(names) > 1
        else f"{files.format}:files/{names[0]}" + (f"#{files.table}" if files.table else "")
    )


Stamp = tuple[str, int, int, int, int]


def stamp_file(path: Path) -> Stamp:
    """What changes when a file is replaced or written to; the time of the last change of all cannot be set back."""
    status = path.stat()
    return (str(path), status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def stamp_source(source: str | Path, root: Path) -> tuple[str, str]:
    """Where a declared source is, by one name whatever links lead there, and what changes when its files do."""
    files = resolve_source(source, root)
    shared = os.path.commonpath([os.path.realpath(path) for path in files.paths])
    stamp = hashlib.sha256(repr([stamp_file(path.resolve()) for path in files.paths]).encode()).hexdigest()
    return f"{shared}#{files.table}" if files.table else shared, stamp


def format_of(path: Path) -> Format:
    """The format of a file, by its name and, where that says nothing, by its first bytes."""
    known = _format_by_suffix(path)
    if known:
        return known
    with path.open("rb") as file:
        start = file.read(12)
    for magic, position, format in (
        (b"PAR1", 0, Format.PARQUET),
        (b"ARROW1", 0, Format.ARROW),
        (b"DUCK", 8, Format.DUCKDB),
    ):
        if start[position : position + len(magic)] == magic:
            return format
    raise DataError(
        f"the format of '{path.name}' is not known",
        expected=f"Names end in {', '.join(SUFFIXES)}",
        remedy="Rename the file for what it holds",
    )


def _split_scheme(text: str) -> tuple[str, Format | None]:
    match = _SCHEME.match(text)
    if not match:
        return text, None
    scheme = match[1].lower()
    if scheme in ("file", *Format):
        return match[2].removeprefix("//"), None if scheme == "file" else Format(scheme)
    kind = scheme[scheme.find("+") :] if "+" in scheme else scheme
    if kind in _ELSEWHERE:
        require_driver(_ELSEWHERE[kind])
    raise DataError(
        f"a source '{scheme}:' cannot be opened by this engine",
        expected="This engine reads local files, folders and frames, and opens no network connection",
        remedy="Copy the data to a local file first",
    )


def _split_table(path: Path, forced: Format | None) -> tuple[Path, str | None]:
    name, mark, table = path.name.rpartition("#")
    inside = mark and not path.exists() and (forced is Format.DUCKDB or _format_by_suffix(Path(name)) is Format.DUCKDB)
    return (path.with_name(name), table) if inside else (path, None)


def _format_by_suffix(path: Path) -> Format | None:
    double = "".join(path.suffixes[-2:]).lower()
    return SUFFIXES.get(double) or SUFFIXES.get(path.suffix.lower())


def _list_folder(folder: Path) -> Files:
    inside = sorted(
        p for p in folder.iterdir() if p.is_file() and not p.name.startswith((".", "_")) and _format_by_suffix(p)
    )
    return _require_one_format(inside, f"the folder '{folder.name}'")


def _require_one_format(paths: list[Path], title: str) -> Files:
    named = [path.absolute() for path in paths if not path.is_dir()]
    files = tuple(_require_regular(path) for path in named)
    if not files:
        raise DataError(f"{title} has no file that can be read", expected=f"Names end in {', '.join(SUFFIXES)}")
    formats = sorted({format_of(path) for path in files})
    if len(formats) > 1 or formats[0] is Format.DUCKDB:
        raise DataError(
            f"{title} has files of the formats {', '.join(formats)}",
            expected="A folder is one table: CSV, Parquet or Arrow files of one format",
            remedy="Name one kind of file, as in 'folder/*.parquet'",
        )
    return Files(formats[0], files, named=tuple(named))


def _require_regular(path: Path) -> Path:
    resolved = Path(os.path.realpath(path))
    if not resolved.is_file():
        raise DataError(f"'{path.name}' is not an ordinary file", remedy="Copy the data to a file first")
    try:
        resolved.open("rb").close()
    except PermissionError:
        raise DataError(f"there is no permission to read '{path.name}'", remedy="Ask the owner of the file") from None
    return resolved


EXTRAS = {"psycopg": "postgres", "pyspark": "spark", "adbc_driver_manager": "adbc"}
"""The import name of each optional driver, and the extra of this package that brings it."""


def is_installed(module: str) -> bool:
    """Whether a driver can be imported; nothing is imported to find out."""
    return find_spec(module) is not None


def require_driver(module: str) -> None:
    """Refuse, naming the extra, when a driver is not installed."""
    if not is_installed(module):
        extra = EXTRAS[module]
        raise MissingExtra(
            f"this source needs '{module}', which is not installed",
            remedy=f"Install it with: pip install 'deniable[{extra}]'",
            extra=extra,
        )


BLOCK = 1 << 20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def as_utf8(path: Path, declared: str | None, scratch: Path) -> Path:
    """The path itself when it is plain UTF-8 (or not yet known not to be), else a transcoded copy under `scratch`."""
    encoding = _resolve_codec(declared) if declared else _detect_encoding(path)
    if encoding in ("utf-8", "utf-8-sig") and path.suffix.lower() != ".gz":
        return path
    # A folder of its own lets the copy keep its name, which is what refusals call it by.
    copy = Path(tempfile.mkdtemp(dir=scratch)) / path.name.removesuffix(".gz")
    with storage_errors(copy), copy.open("xb") as target:
        _transcode(_read_blocks(path), target, encoding, path.name)
    return copy


def refuse_encoding(path: Path, line: int) -> DataError:
    """The refusal for bytes that are not UTF-8 in a file that declared nothing else."""
    return DataError(
        f"line {line} of '{path.name}' is not valid UTF-8",
        remedy="Declare the file's encoding, for example cp1252: with --encoding, or as csv: {encoding: cp1252} in the "
        "policy's table",
        place=Place(path.name, line),
    )


def _resolve_codec(name: str) -> str:
    known = find_codec(name)
    if known is None:
        raise DataError(
            f"there is no encoding '{name}'", expected="An encoding is named as in utf-8, latin-1, cp1252, utf-16"
        )
    return known


def _detect_encoding(path: Path) -> str:
    start = next(_read_blocks(path, 512), b"")
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    if b"\0" in start:
        raise DataError(
            f"'{path.name}' is not a text file in UTF-8: its start has zero bytes",
            remedy="If it is UTF-16 without a byte-order mark, declare encoding utf-16-le or utf-16-be",
        )
    return "utf-8"


def _transcode(blocks: Iterable[bytes], target: BinaryIO, encoding: str, name: str) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    try:
        for block in blocks:
            text = decoder.decode(block)
            target.write(text.encode("utf-8"))
            line += text.count("\n")
        target.write(decoder.decode(b"", final=True).encode("utf-8"))
    except UnicodeError:
        raise DataError(f"'{name}' is not {encoding} after line {line}", remedy="Declare another encoding") from None


def _read_blocks(path: Path, size: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a file, unpacked; one that cannot be read to its end is refused."""
    packed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            while block := file.read(size):
                yield block
    except (OSError, EOFError, zlib.error):  # which gzip raises of what is damaged, cut off or not packed
        raise DataError(
            f"'{path.name}' is not a whole gzip file" if packed else f"'{path.name}' cannot be read to its end",
            remedy="Pack it again; if it is not packed, name it without .gz" if packed else "Write it again",
        ) from None


ARROW_STREAM = "__arrow_c_stream__"
"""The method of Arrow's PyCapsule interface: whatever has it can be read as a table."""


def is_frame(source: object) -> bool:
    """Whether a source is rows in memory rather than a path: of a known library, or of any that speaks Arrow."""
    return _library_of(source) in ("pandas", "polars", "pyarrow") or is_stream(source)


def is_stream(source: object) -> bool:
    """Whether rows are offered by another library as an Arrow stream, which may be readable only once."""
    return _library_of(source) not in ("pandas", "polars", "pyarrow") and hasattr(source, ARROW_STREAM)


def as_arrow(source: Any) -> pa.Table | pa.RecordBatchReader:
    """A frame as an Arrow table; a reader stays a reader, since it may be longer than memory."""
    library, kind = _library_of(source), type(source).__name__
    if library == "pyarrow" and kind == "RecordBatchReader":
        return source
    if library == "pyarrow" and kind == "Table":
        return _widen_columns(source)
    if library == "pyarrow" and kind == "RecordBatch":
        return _widen_columns(pa.Table.from_batches([source]))
    if library == "polars" and kind in ("DataFrame", "LazyFrame"):
        return _widen_columns((source.collect() if kind == "LazyFrame" else source).to_arrow())
    if library == "pandas" and kind == "DataFrame":
        return _widen_columns(_convert_pandas(source))
    if is_stream(source):
        return _widen_columns(pa.RecordBatchReader.from_stream(source).read_all())
    raise DataError(
        f"a {library} {kind} is not a table",
        expected="A source is a path, a pandas or Polars DataFrame, a pyarrow Table or RecordBatchReader, or an object "
        f"with {ARROW_STREAM}",
    )


def _widen_columns(table: pa.Table) -> pa.Table:
    """The table in types that engines read: times with a zone in microseconds, half-precision numbers as single."""
    for position, column in enumerate(table.schema):
        wider = _find_wider(column.type)
        if wider is not None:
            try:
                held = table.column(position)
                fine = pa.types.is_timestamp(wider) and column.type.unit == "ns"
                held = _floor_to_microseconds(held).cast(wider) if fine else held.cast(wider)
            except pa.ArrowInvalid:
                raise DataError(
                    f"column '{column.name}' of the frame holds times beyond the year 294247",
                    remedy="Replace them by missing values first",
                    column=column.name,
                ) from None
            table = table.set_column(position, column.with_type(wider), held)
    return table


def _floor_to_microseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole microseconds since 1970; a cast rounds those before 1970 up."""
    fine = times.cast(pa.int64())
    whole = pc.divide(fine, 1000)
    return pc.subtract(whole, pc.less(pc.subtract(fine, pc.multiply(whole, 1000)), 0).cast(pa.int64()))


def _find_wider(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_float16(kind):
        return pa.float32()
    coarse_or_fine = pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit != "us"
    return pa.timestamp("us", kind.tz) if coarse_or_fine else None


def _convert_pandas(frame: Any) -> pa.Table:
    names = normalize_names(frame.columns)
    arrays = [_convert_column(frame.iloc[:, position], name) for position, name in enumerate(names)]
    # Without columns an Arrow table cannot know how many rows it has; no question can be asked of one either.
    return pa.table(arrays, names=list(names))


def _convert_column(series: Any, name: str) -> pa.ChunkedArray | pa.Array:
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # Arrow's own message quotes the value it stumbled over.
        raise DataError(
            f"column '{name}' of the frame mixes types, or has a type that tables do not hold",
            remedy="Give it one type first, for example with astype(str)",
            column=name,
        ) from None


def _library_of(source: object) -> str:
    return type(source).__module__.partition(".")[0]


FORMATS = ("csv", "parquet", "arrow")


def write_rows(
    batches: Iterable[pa.RecordBatch] | pa.Table,
    path: Path,
    format: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write all batches under one name, at the end and at once; returns the number of rows."""
    chosen = _choose_format(path, format)
    schema, rest = _split_schema(batches)
    rows = 0
    with whole_file(path) as file, _open_writer(file, schema, chosen) as writer:
        for batch in rest:
            aligned = _align_batch(batch, schema)
            writer.write_batch(_escape_formulas(aligned) if chosen == "csv" else aligned)
            rows += batch.num_rows
            if progress:
                progress(rows)
    return rows


def _escape_formulas(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as a CSV file may hold them: no text that a spreadsheet would run, and no line without anything."""
    columns = [_escape_column(column) for column in batch.columns]
    if len(columns) == 1:
        columns = [_quote_missing(columns[0])]
    return pa.RecordBatch.from_arrays(columns, names=[escape_formula(name) for name in batch.schema.names])


def _escape_column(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        texts = _escape_column(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, texts, ordered=column.type.ordered)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    begins = pc.match_substring_regex(column, pattern=r"^'*[=+\-@\t\r]")
    if not pc.any(begins).as_py():
        return column
    return pa.array([value if value is None else escape_formula(value) for value in column.to_pylist()], column.type)


def _quote_missing(column: pa.Array) -> pa.Array:
    """The only column of a file as texts, which are quoted: readers skip an empty line, and a row would be lost."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return pc.fill_null(pc.cast(plain, pa.string()), "")


def _choose_format(path: Path, format: str | None) -> str:
    chosen = format or ROW_ENDINGS.get(path.suffix.lower(), "")
    if chosen not in FORMATS:
        raise ParameterError(
            f"'{path.name}' cannot be written" + (f" as '{format}'" if format else ""),
            expected="Files are written as .csv, .parquet or .arrow",
            remedy=nearest(chosen or path.suffix, [*FORMATS, *ROW_ENDINGS]),
        )
    return chosen


def _split_schema(batches: Iterable[pa.RecordBatch] | pa.Table) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(batches, pa.Table):
        return batches.schema, iter(batches.to_batches())
    if isinstance(batches, pa.RecordBatchReader):
        return batches.schema, iter(batches)
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        raise DataError("there is no batch to write, so the columns are not known", remedy="Pass a pyarrow Table")
    return first.schema, chain([first], rest)


def _align_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError):
        raise DataError("a later batch has other columns or types than the first") from None


def _open_writer(file: BinaryIO, schema: pa.Schema, format: str) -> Any:
    # The three writers share write_batch and close at the end of their block.
    if format == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(file, schema, compression="zstd")
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    import pyarrow.csv as csv

    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise DataError(f"column '{nested[0]}' holds lists or records, which CSV cannot", remedy="Write Parquet")
    named = pa.schema([field.with_name(escape_formula(field.name)) for field in schema])
    if len(named) == 1:
        named = pa.schema([named.field(0).with_type(pa.string())])
    return csv.CSVWriter(file, named, write_options=csv.WriteOptions(quoting_style="needed"))


HASHED_BYTES, HASHED_ROWS = 8 << 20, 65_536
"""What is hashed at a time. Every byte counts: a sample would miss the one corrected record that matters."""


def hash_file(path: Path) -> str:
    """The fingerprint of one file's bytes."""
    from concurrent.futures import ThreadPoolExecutor

    with path.open("rb") as file, ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        blocks = iter(lambda: file.read(HASHED_BYTES), b"")
        return combine_hashes(digest.hex() for digest in _hash_in_order(pool, blocks))


def hash_source(source: Any, root: Path) -> str | None:
    """The fingerprint of all that a source holds, read anew each time; None for rows that can be read only once."""
    if not is_frame(source):
        return combine_hashes(hash_file(path) for path in resolve_source(source, root).paths)
    rows = as_arrow(source)
    return hash_table(rows) if isinstance(rows, pa.Table) else None


def hash_table(table: pa.Table) -> str:
    """The fingerprint of rows in memory, the same however they are cut into chunks."""
    digest = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for start in range(0, table.num_rows, HASHED_ROWS):
        sink = pa.BufferOutputStream()
        piece = table.slice(start, HASHED_ROWS).combine_chunks().replace_schema_metadata(None)
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        digest.update(sink.getvalue())
    return digest.hexdigest()


def combine_hashes(parts: Iterable[str]) -> str:
    """One fingerprint of several, in their order.

    >>> combine_hashes(["a", "b"]) == combine_hashes(["ab"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _hash_in_order(pool: ThreadPoolExecutor, blocks: Iterator[bytes]) -> Iterator[bytes]:
    # At most a handful of blocks are in flight, so that a large file does not queue up in memory.
    waiting = []
    for block in blocks:
        waiting.append(pool.submit(lambda block=block: hashlib.sha256(block).digest()))  # type: ignore[misc]
        if len(waiting) == 8:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()
