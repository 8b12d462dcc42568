"""The shared test vectors: both client files and the collector's side agree on every byte of the wire."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from deniable.localdp import client, serialization
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import bucket_of
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.sketch import hash_strings
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.numeric.mechanisms import Duchi, Window
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.protocol import message_bytes

FOLDER = Path(str(files("deniable.localdp")))
DOCUMENT = json.loads((FOLDER / "vectors.json").read_text("utf-8"))
VECTORS = DOCUMENT["vectors"]


def ids(vector: dict[str, object]) -> str:
    return str(vector["recipe"]["protocol"])


@pytest.mark.parametrize("vector", VECTORS, ids=ids)
def test_the_python_client_gives_the_stated_response_and_uses_exactly_the_stated_entropy(vector):
    entropy = bytes.fromhex(vector["entropy"])
    used = 0

    def take(count: int) -> bytes:
        nonlocal used
        used += count
        return entropy[used - count : used]

    response = client.randomize(vector["recipe"], vector["answer"], lambda bound: client.system_draw(bound, take))
    assert response == vector["response"]
    assert used == len(entropy)


@pytest.mark.parametrize("vector", VECTORS, ids=ids)
def test_responses_travel_as_json_and_as_the_stated_bytes(vector):
    protocol = serialization.protocol_of(vector["recipe"])
    assert serialization.recipe(protocol) == vector["recipe"]
    columns = serialization.from_json(protocol.layout, [vector["response"]])
    message = serialization.to_bytes(protocol.layout, columns)
    assert message.hex() == vector["bytes"]
    assert len(message) == message_bytes(protocol.layout)
    assert serialization.to_json(protocol.layout, serialization.from_bytes(protocol.layout, message)) == [
        vector["response"]
    ]


@pytest.mark.parametrize(
    "vector",
    [v for v in VECTORS if v["recipe"]["protocol"] in ("k-ary", "hashing", "hadamard", "duchi", "window")],
    ids=ids,
)
def test_the_vectorized_randomizers_follow_the_same_draws(vector):
    protocol = serialization.protocol_of(vector["recipe"])
    assert [bound for bound, _ in vector["draws"]] == list(protocol.draws)
    columns = protocol.respond(np.array([vector["answer"]]), *(np.array([value]) for _, value in vector["draws"]))
    assert serialization.to_json(protocol.layout, columns) == [vector["response"]]


def test_hashes_agree_with_the_collectors_side():
    for value, seed, expected in DOCUMENT["hash32"]:
        assert client.hash32(value, seed) == expected
        top = bucket_of(np.array([value]), np.array([seed]), 1 << 20)[0]
        assert top == expected >> 12
    for text, function, width, expected in DOCUMENT["position"]:
        assert client.position(text, function, width) == expected
        assert hash_strings([text], function + 1, width)[0, function] == expected


def test_the_javascript_client_passes_the_same_vectors():
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed; the browser test runs the same vectors where Chromium is")
    script = Path(__file__).with_name("vectors.mjs")
    command = [node, str(script), str(FOLDER / "client.mjs"), str(FOLDER / "vectors.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 2 * len(VECTORS) + len(DOCUMENT["hash32"]) + len(DOCUMENT["position"])


SCALE = Scale.between(0, 4)
SMALL = {
    "coins": (two_coins(), range(2)),
    "k-ary": (Direct(4, Fraction(7, 2)), range(4)),
    "hadamard": (Hadamard(5, 2, Fraction(5, 2)), range(5)),
    "hadamard of four": (Hadamard(4, 4, Fraction(2)), range(4)),
    "subset": (Subset(4, 2, Fraction(3, 2)), range(4)),
    "duchi": (Duchi(SCALE, Fraction(5, 3)), range(5)),
    "window": (Window(SCALE, 5, 2, Fraction(5, 2)), range(5)),
}


def every_course(recipe: dict[str, object], answer: object) -> dict[str, Fraction]:
    """The exact distribution of the client's responses: all draws are followed, each with its probability."""
    seen: dict[str, Fraction] = {}

    def follow(prefix: tuple[int, ...], weight: Fraction) -> None:
        fixed, bounds = list(prefix), []

        def draw(bound: int) -> int:
            if fixed:
                return fixed.pop(0)
            bounds.append(bound)
            raise LookupError

        try:
            response = json.dumps(client.randomize(recipe, answer, draw))
        except LookupError:
            for value in range(bounds[0]):
                follow((*prefix, value), weight / bounds[0])
        else:
            seen[response] = seen.get(response, Fraction(0)) + weight

    follow((), Fraction(1))
    return seen


@pytest.mark.parametrize("name", SMALL)
def test_following_every_draw_of_the_client_file_gives_exactly_the_proven_probabilities(name):
    protocol, answers = SMALL[name]
    for answer in answers:
        stated: dict[str, Fraction] = {}
        for outcome, likelihood in protocol.likelihoods(answer):
            key = json.dumps([list(part) if isinstance(part, tuple) else part for part in outcome])
            stated[key] = stated.get(key, Fraction(0)) + likelihood
        assert every_course(serialization.recipe(protocol), answer) == stated


def test_following_every_draw_of_unary_bits_on_a_coarse_grid(monkeypatch):
    monkeypatch.setattr(client, "GRID", 4)
    seen = every_course({"protocol": "unary", "domain": 3, "keep": 2, "flip": 1}, 1)
    for string in product((0, 1), repeat=3):
        expected = Fraction(1)
        for place, bit in enumerate(string):
            one = Fraction(1, 2) if place == 1 else Fraction(1, 4)
            expected *= one if bit else 1 - one
        packed = sum(bit << place for place, bit in enumerate(string))
        assert seen[json.dumps([f"{packed:02x}"])] == expected


def test_uniform_draws_reject_the_uneven_rest():
    answers = iter([b"\xff", b"\xfe", b"\x05"])
    assert client.system_draw(250, lambda count: next(answers)) == 5
    assert client.system_draw(1, lambda count: b"" if count == 0 else b"\x00") == 0
