"""De-identification beside its peers in the same run: tokens, files, detection. Free text has `bench/free_text.py`.

- tokens: a million different strings to HMAC-SHA-256 tokens, beside `hmac.new` and beside precomputed pads.
- hashing: the digests alone, compiled lanes beside `hashlib`, by the length of a string.
- files: masking a 10-column Parquet file of five million rows, beside copying it through the engine; peak memory.
- detection: the tables of public officials (../shared/data/officials), each column with its true kind.

Every figure is the best of several runs; CPU seconds stand beside wall seconds. BENCH_ROWS shrinks the file.
`python bench/masking.py NAME` runs one of tokens, hashing, detection, files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deniable.curator.mask import run as workflow
from deniable.engines.duckdb import DuckDBEngine
from deniable.masking import format_preserving, identifiers, keys, pseudonyms, sha256

ROWS = int(os.environ.get("BENCH_ROWS", 5_000_000))
STRINGS = 1_000_000
REPEATS = 3
ROOT = Path(__file__).resolve().parents[1]
OFFICIALS = ROOT.parent / "shared" / "data" / "officials"

POLICY = """
version: 1
dataset: bench
tables:
  people:
    source: people.parquet
    unit: {column: person_id}
    columns:
      person_id: {role: identifier, mask: {token: {key: people}}}
      name: {role: identifier, mask: redact}
      phone: {role: identifier, mask: redact}
      zip: {role: quasi-identifier, mask: {generalize: zip3}}
      birth: {type: date, role: quasi-identifier, mask: {generalize: year}}
      visit: {type: date, role: quasi-identifier, mask: {shift_dates: {key: people}}}
      age: {type: integer, role: quasi-identifier, mask: {generalize: age_over_89}}
      charge: {type: decimal, role: sensitive}
      diagnosis: {role: sensitive}
      sex: {role: quasi-identifier}
"""


def best(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Wall and CPU seconds of the fastest of several runs."""
    taken = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(taken)


def compare_tokens() -> None:
    """A million strings, three ways, with equal digests."""
    key = keys.generate_key("bench")
    secret = key.derive("token", "bench")
    values = [f"person-{i:08d}" for i in range(STRINGS)]
    column = pa.array(values)
    mask = pseudonyms.make_token_mask(key, "bench")
    sha256.load_kernel()
    ours = best(lambda: mask.apply(column), 5)
    naive = best(lambda: [hmac.new(secret, v.encode(), hashlib.sha256).digest() for v in values], 1)
    pads = best(lambda: _with_pads(secret, values), 1)
    shown = f"tokens  {STRINGS:,} strings: {ours[1]:.2f} s CPU (bar 0.60)"
    print(
        f"{shown} | hmac.new {naive[1]:.2f} s: x{naive[1] / ours[1]:.1f} | pads {pads[1]:.2f} s: x"
        f"{pads[1] / ours[1]:.1f}"
    )
    phones = pa.array([f"202-{i // 10000:03d}-{i % 10000:04d}" for i in range(STRINGS)])
    same_form = best(lambda: format_preserving.make_format_mask(key, "bench").apply(phones), 2)
    print(f"tokens  {STRINGS:,} telephone numbers by FF1: {same_form[1]:.2f} s CPU")


def _with_pads(secret: bytes, values: list[str]) -> list[bytes]:
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in secret.ljust(64, b"\0")))
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in secret.ljust(64, b"\0")))
    digests = []
    for value in values:
        first, second = inner.copy(), outer.copy()
        first.update(value.encode())
        second.update(first.digest())
        digests.append(second.digest())
    return digests


def compare_hashing() -> None:
    """The compiled lanes and `hashlib` on the same bytes, with equal digests."""
    sha256.load_kernel()
    for length in (8, 16, 32, 55, 100, 500):
        rows = 200_000
        data = np.random.default_rng(length).integers(0, 256, rows * length, dtype=np.uint8)
        offsets = np.arange(0, rows * length + 1, length)
        ours = best(lambda d=data, o=offsets: sha256.hmac_column(b"key", d, o))
        theirs = best(lambda d=data, o=offsets: sha256.hash_with_hashlib(b"key", d, o))
        assert (sha256.hmac_column(b"key", data, offsets) == sha256.hash_with_hashlib(b"key", data, offsets)).all()
        print(
            f"hashing {rows:,} strings of {length:3} bytes: lanes {ours[1]:.3f} s CPU | hashlib {theirs[1]:.3f} s: x"
            f"{theirs[1] / ours[1]:.1f}"
        )


def make_people(folder: Path) -> None:
    """Ten columns: identifiers, dates, numbers, categories."""
    writer = None
    for start in range(0, ROWS, 500_000):
        ids = np.arange(start, min(start + 500_000, ROWS))
        number = pa.array(ids)
        rows = pa.table(
            {
                "person_id": number.cast(pa.string()),
                "name": pa.array([f"Name {i % 50_000}" for i in ids]),
                "phone": pa.array([f"202-{i // 10_000 % 1000:03d}-{i % 10_000:04d}" for i in ids]),
                "zip": pa.array(10_000 + ids % 90_000).cast(pa.string()),
                "birth": pa.array((ids % 20_000).astype("int32")).cast(pa.date32()),
                "visit": pa.array((18_000 + ids % 700).astype("int32")).cast(pa.date32()),
                "age": pa.array(ids % 100),
                "charge": pa.array(np.random.default_rng(start).random(len(ids)) * 1e4),
                "diagnosis": pa.array([f"D{i % 40}" for i in ids]),
                "sex": pa.array(np.where(ids % 2, "F", "M")),
            }
        )
        writer = writer or pq.ParquetWriter(folder / "people.parquet", rows.schema, compression="zstd")
        writer.write_table(rows)
    assert writer is not None
    writer.close()
    (folder / "policy.yaml").write_text(POLICY)
    keys.store_key(keys.generate_key("people"), folder / "people.key")


def child(what: str, folder: Path) -> None:
    """One measured run in a process of its own, so that its peak memory is its own; start-up is not counted."""
    sha256.load_kernel()
    pa.array([1])
    wall, cpu = time.perf_counter(), time.process_time()
    if what == "copy":
        with DuckDBEngine(memory="400MB") as engine:
            engine.attach("people", str(folder / "people.parquet"))
            engine.write(engine.stream("people"), folder / "copy.parquet")
    else:
        place = f"people=file:{folder / 'people.key'}"
        request = workflow.request_for(folder / "policy.yaml", None, "people", folder / "out.parquet", keys=[place])
        workflow.mask(request)
    used = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([*used, peak]))


def compare_files() -> None:
    """Mask and copy, in turns, each in its own process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_people(folder)
        taken: dict[str, list[list[float]]] = {"copy": [], "mask": []}
        for _ in range(REPEATS):
            for what, runs in taken.items():
                done = subprocess.run(
                    [sys.executable, __file__, "--child", what, name], check=True, capture_output=True, text=True
                )
                runs.append(json.loads(done.stdout))
        copy, mask = min(taken["copy"]), min(taken["mask"])
        print(
            f"files   {ROWS:,} rows masked in {mask[0]:.1f} s wall, {mask[1]:.1f} s CPU | copied in {copy[0]:.1f} s, "
            f"{copy[1]:.1f} s CPU | speed x{copy[0] / mask[0]:.2f} wall, x{copy[1] / mask[1]:.2f} CPU of copyi"
            f"ng (bar 0.50) "
            f"| peak {max(run[2] for run in taken['mask']):.0f} MB (bar 1000)"
        )


def officials() -> dict[str, tuple[pa.Table, dict[str, str]]]:
    """The tables and the true kind of every identifying column; columns not listed are not identifying."""
    import pyarrow.csv as csv
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe")
    people = yaml.load(OFFICIALS / "legislators-current.yaml")
    offices = yaml.load(OFFICIALS / "legislators-district-offices.yaml")
    rows = [
        {k: v[0] if isinstance(v, list) else v for k, v in person["id"].items()}
        | {f"name_{k}": v for k, v in person["name"].items()}
        | person["bio"]
        | {k: v for k, v in person["terms"][-1].items() if not isinstance(v, list)}
        for person in people
    ]
    places = [{"bioguide": one["id"]["bioguide"]} | office for one in offices for office in one["offices"]]
    ids = (
        "bioguide thomas lis govtrack opensecrets votesmart fec cspan house_history maplight icpsr wikida"
        "ta google_entity_id pictorial id"
    )
    truth = dict.fromkeys(ids.split(), "id") | {
        "wikipedia": "name", "ballotpedia": "name", "name_first": "name", "name_last": "name", "name_middle": "name",
        "name_nickname": "name", "name_official_full": "name", "firstname": "name", "middlename": "name",
        "lastname": "name",
        "birthday": "birth date", "phone": "telephone", "fax": "telephone", "address": "address", "office": "address",
        "suite": "address", "city": "address", "zip": "address", "latitude": "address", "longitude": "address",
        "building": "address", "district": "address", "url": "url", "rss_url": "url", "contact_form": "url",
        "start": "date",
        "end": "date", "termstart": "date", "age": "age", "gender": "demographic",
    }  # fmt: skip
    return {
        "legislators": (_table(rows), truth),
        "offices": (_table(places), truth),
        "terms": (csv.read_csv(OFFICIALS / "congress-terms.csv"), truth),
    }


def _table(rows: list[dict[str, object]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        whole = all(value is None or isinstance(value, int | float) for value in values)
        columns[name] = pa.array(values if whole else [None if v is None else str(v) for v in values])
    return pa.table(columns)


FAMILIES = {
    "given name": "name", "surname": "name", "name": "name", "record id": "id", "national id": "id", "fax": "telephone",
    "medical record number": "id", "street address": "address", "city": "address", "postal code": "address",
    "coordinate": "address", "county or district": "address",
}  # fmt: skip
SOUGHT = ("name", "birth date", "telephone", "address", "id")


def compare_detection() -> None:
    """Found, missed and falsely accused columns, over all three tables."""
    if not OFFICIALS.exists():
        print(f"detect  skipped: {OFFICIALS} is not there")
        return
    right, wanted, missed, false = 0, 0, [], []
    for name, (rows, truth) in officials().items():
        found = {f.column: FAMILIES.get(f.kind, f.kind) for f in identifiers.detect(rows)}
        for column in rows.schema.names:
            expected = truth.get(column)
            if expected in SOUGHT:
                wanted += 1
                right += found.get(column) == expected
                missed += [f"{name}.{column}"] if found.get(column) != expected else []
            if column in found and found[column] != expected:
                false.append(f"{name}.{column}")
    print(
        f"detect  officials: {right} of {wanted} columns found, {len(false)} false alarms (bar 1) {false} "
        f"| missed {missed}"
    )


COMPARISONS = {
    "tokens": compare_tokens,
    "hashing": compare_hashing,
    "detection": compare_detection,
    "files": compare_files,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]))
    else:
        for name in sys.argv[1:] or COMPARISONS:
            COMPARISONS[name]()
