"""`deniable audit`: sound mechanisms stand, broken twins are refuted with exit code 2, the game is drawn on a page.

Noise comes from the operating system. At confidence 1 - 1e-9 a sound mechanism is refuted once in a billion runs.
"""

import json

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import ParameterError

SURE = "0.999999999"


def audit(*words, confidence=SURE):
    done = CliRunner().invoke(app, ["audit", *map(str, words), "--confidence", confidence, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize(("name", "more"), [("laplace", ()), ("gaussian", ("--delta", "0.001")), ("response", ())])
def test_a_sound_mechanism_stands_and_its_twin_with_a_sixth_of_the_noise_is_refuted(name, more):
    code, found = audit(name, "--epsilon", 1, *more)
    assert code == 0
    assert found["audit"]["epsilon_bound"] <= 1
    # At epsilon 6 for a claim of 1 the bound is 2.7 and more, and the games won 79% and more of 20,000, where 73.1% are
    # allowed: over ten standard deviations.
    code, found = audit(name, "--epsilon", 1, "--spends", 6, *more)
    assert code == 2
    assert found["audit"]["epsilon_bound"] > 1
    assert found["game"]["wins"]["share"] > found["game"]["most"]


@pytest.mark.parametrize(("name", "claim", "spends"), [("training", 1, 60), ("synthesis", "0.05", 20)])
def test_what_is_too_slow_for_many_runs_is_audited_by_one(name, claim, spends, tmp_path):
    words = (name, "--epsilon", claim, "--delta", "1e-6")
    code, found = audit(*words)
    assert code == 0
    assert found["runs"] == 1
    # Training: noise of a third of what one person adds, and 38 of 40 calls are enough. Synthesis: what one person adds
    # is half a deviation, 76% of 400 calls are right on average, and 60% are enough.
    twin = ("--spends", spends, "--report", tmp_path / "audit.html")
    code, found = audit(*words, *twin, confidence="0.999")
    assert code == 2
    assert found["audit"]["epsilon_bound"] > found["epsilon"]
    assert "calls about" in (tmp_path / "audit.html").read_text()


def test_a_choice_stands():
    assert audit("exponential", "--runs", 1000)[0] == 0


def test_the_page_draws_the_game_beside_the_bound_and_tells_the_verdict(tmp_path):
    page = tmp_path / "audit.html"
    audit("laplace", "--report", page)
    html = page.read_text()
    assert all(word in html for word in ("best attacker", "bound of epsilon", "The claim of epsilon 1 stands"))
    audit("laplace", "--spends", 5, "--report", page)
    assert "is refuted" in page.read_text()
    assert "http://" not in html.split("<body")[1].split("<script")[0]


def test_what_a_newcomer_mistypes_is_answered_with_help():
    with pytest.raises(ParameterError, match="Did you mean 'laplace'"):
        audit("laplac")
    with pytest.raises(ParameterError, match="without a delta"):
        audit("gaussian")
    with pytest.raises(ParameterError, match="without a delta"):
        audit("training")
