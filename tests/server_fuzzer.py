"""A fuzzer of the two protocols: mutates what is in a corpus, and keeps what was answered as nothing before.

A corpus is a file under tests/data/fuzz with one input a line, its bytes escaped as in Python, after the kind of answer
that it was kept for. What did harm once stays in it, and is sent again by every run of the tests. A longer run that
adds what it finds to the files:

    DENIABLE_FUZZ=5000 pytest -n0 -m slow tests/workflows/test_server_hostile.py -k corpus
"""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "fuzz"
ROUNDS = int(os.environ.get("DENIABLE_FUZZ", 0))
LONGEST = 4_000
"""Bytes of an input that is kept."""
MOST = 150
"""Inputs of one corpus."""
NUMBERS = (0, 1, -1, 3, 4, 5, 127, 128, 255, 256, 32_767, 32_768, 65_535, 2**31 - 1, -(2**31))
WORDS = (
    b"SELECT 1", b"SELECT", b"FROM people", b"NULL", b"$1", b"'", b'"', b"--", b"/*", b"\0", b"\xff", b"{}", b"[]",
    b"[[", b"1e999", b"-0", b"true", b"null", b"\\u0000", b"\\ud800", b"\r\n", b"\r\n\r\n", b"chunked",
    b"Content-Length: 0\r\n",
)  # fmt: skip

Ask = Callable[[bytes], str]
"""Sends an input, and gives the kind of its answer; raises where harm was done."""


def escape(data: bytes) -> str:
    """Bytes as a line of text."""
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def read_corpus(name: str) -> dict[bytes, str]:
    """The inputs of a corpus, each with the kind of answer that it was kept for."""
    lines = (line.partition("\t") for line in (FOLDER / f"{name}.txt").read_text("ascii").splitlines())
    return {text.encode("ascii").decode("unicode_escape").encode("latin-1"): kind for kind, _, text in lines}


def write_corpus(name: str, corpus: dict[bytes, str]) -> None:
    """Write a corpus, in the order of its answers."""
    lines = sorted(f"{kind}\t{escape(data)}\n" for data, kind in corpus.items())
    (FOLDER / f"{name}.txt").write_text("".join(lines), "ascii")


def mutate(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """An input like another one, with one to four changes: half of the time after its head."""
    for _ in range(rng.randrange(1, 5)):
        body = min(len(data), max(5, data.find(b"\r\n\r\n") + 4))
        low = rng.choice((0, body))
        at, to = sorted(rng.randrange(low, len(data) + 1) for _ in range(2))
        end = min(to, at + rng.choice((1, 2, 4, 40)))
        number = rng.choice(NUMBERS)
        changed = rng.choice(
            (
                rng.randbytes(end - at),
                b"",
                data[at:end] * rng.choice((2, 3, 50)),
                rng.choice(WORDS),
                struct.pack("!i", number),
                struct.pack("!h", (number + 2**15) % 2**16 - 2**15),
                str(number).encode(),
                other[at:to],
            )
        )
        data = (data[:at] + changed + data[end:])[:LONGEST]
    return data


def repair_wire(data: bytes) -> bytes:
    """An input as one message whose length is true."""
    return data[:1] + struct.pack("!i", len(data[5:]) + 4) + data[5:]


def repair_http(data: bytes) -> bytes:
    """An input whose body is as long as its headers say."""
    head, cut, body = data.partition(b"\r\n\r\n")
    return re.sub(rb"Content-Length: [^\r]*", b"Content-Length: %d" % len(body), head) + cut + body


REPAIRS = {"wire": repair_wire, "http": repair_http}
"""Most of what is changed is not read where a length is wrong, so lengths are put right in most inputs."""


def name_words(text: str) -> str:
    """A sentence without what changes between two runs of it: numbers and quoted names."""
    return re.sub(r"'[^']*'|[0-9][0-9,.]*", "?", text)[:60]


def grow(name: str, ask: Ask, rounds: int, seed: int = 0) -> dict[bytes, str]:
    """Send mutated inputs; what was answered in a new way is in the corpus that is given, and is mutated in turn."""
    rng, corpus = random.Random(seed), {data: ask(data) for data in read_corpus(name)}
    for _ in range(rounds):
        first, second = rng.choice(tuple(corpus)), rng.choice(tuple(corpus))
        data = mutate(first, second, rng)
        data = REPAIRS[name](data) if rng.random() < 0.7 else data
        kind = ask(data)
        if kind not in corpus.values() and len(corpus) < MOST:
            corpus[data] = kind
    return corpus
