"""Reruns: only marked tests are run again, their number is told, and a run with too many of them fails."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
CONFTEST = """
import sys
sys.path.append({tests!r})
import reruns
reruns.MOST_RERUNNABLE = {most}

def pytest_configure(config):
    config.addinivalue_line("markers", "statistical(false_alarm): draws noise")
    config.pluginmanager.register(reruns, "reruns")
"""
WITHOUT = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest", "anyio")]
"""Plugins that take long to start and have no part in this."""
RINGING = """
import pytest
rung = []

def ring(times):
    rung.append(1)
    assert len(rung) > times
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run a small test file under the rules, in a process of its own."""

    def start(body: str, *options: str, most: int = 350) -> pytest.RunResult:
        pytester.makeconftest(CONFTEST.format(tests=str(TESTS), most=most))
        pytester.makepyfile(RINGING + body)
        return pytester.runpytest_subprocess("--strict-markers", *WITHOUT, *options)

    return start


MARKED = """
@pytest.mark.statistical(false_alarm=1e-4)
def test_marked():
    ring({times})
"""
UNMARKED = "def test_unmarked():\n    ring({times})\n"


def test_a_marked_test_is_run_three_times_and_its_reruns_are_named(run) -> None:
    found = run(MARKED.format(times=2))
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["*2 reruns*", "2 x *::test_marked"])
    assert found.ret == 0


def test_three_alarms_in_a_row_count(run) -> None:
    found = run(MARKED.format(times=3))
    found.assert_outcomes(failed=1)
    assert found.ret == 1


def test_an_unmarked_test_is_never_run_again(run) -> None:
    found = run(UNMARKED.format(times=1))
    found.assert_outcomes(failed=1)
    found.stdout.no_fnmatch_line("* x *::test_unmarked")


def test_the_count_of_tests_that_may_be_run_again_is_told_after_collection(run) -> None:
    found = run(MARKED.format(times=0) + "@pytest.mark.parametrize('x', [1, 2, 3])\ndef test_other(x): pass\n")
    found.stdout.fnmatch_lines(["reruns: 1 of 4 tests may be run again*0.0001 false alarms expected*"])


def test_a_parallel_run_tells_the_same(run) -> None:
    found = run(MARKED.format(times=1) + "def test_other(): pass\n", "-n", "1")
    found.stdout.fnmatch_lines(["reruns: 1 of 2 tests may be run again*", "*1 reruns*", "1 x *::test_marked"])
    assert found.ret == 0


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_more_than_three_reruns_fail_a_run_in_which_all_tests_passed(run, options) -> None:
    body = """
@pytest.mark.statistical(false_alarm=1e-4)
@pytest.mark.parametrize("case", range({cases}))
def test_marked(case):
    rung.append(case)
    assert rung.count(case) > 1
"""
    most = run(body.format(cases=3), *options)
    most.assert_outcomes(passed=3)
    assert most.ret == 0
    more = run(body.format(cases=4), *options)
    more.assert_outcomes(passed=4)
    assert more.ret == 1
    more.stdout.fnmatch_lines(["FAILED: more than 3 reruns*"])


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("statistical", "*say statistical(false_alarm=...)*"),
        ("statistical(1e-4)", "*say statistical(false_alarm=...)*"),
        ("statistical(false_alarm=1e-4, reruns=9)", "*say statistical(false_alarm=...)*"),
        ("statistical(false_alarm=1e-7)", "*false-alarm rate of 1e-07 is not in*"),
        ("statistical(false_alarm=0.05)", "*false-alarm rate of 0.05 is not in*"),
        ("flaky(reruns=2)", "*mark it as statistical*"),
        ("statistic(false_alarm=1e-4)", "*'statistic' not found in `markers`*"),
    ],
)
def test_a_marker_states_its_rate_or_nothing_runs(run, marker: str, told: str) -> None:
    found = run(f"@pytest.mark.{marker}\ndef test_one():\n    pass\n")
    assert found.ret != 0
    assert "1 passed" not in str(found.stdout)
    pytest.LineMatcher([*found.outlines, *found.errlines]).fnmatch_lines([told])


def test_every_test_cannot_be_rerun_from_the_command_line(run) -> None:
    found = run(UNMARKED.format(times=0), "--reruns", "2")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*mark a test as statistical instead*"])


def test_more_marked_tests_than_allowed_are_refused(run) -> None:
    body = "@pytest.mark.statistical(false_alarm=1e-4)\n@pytest.mark.parametrize('x', range(6))\ndef test_x(x): pass\n"
    assert run(body, most=6).ret == 0
    found = run(body, most=5)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*6 tests are marked as statistical, and 5 may be*"])


def test_without_the_plugin_for_reruns_marked_tests_run_once(run) -> None:
    found = run(MARKED.format(times=1), "-p", "no:rerunfailures")
    found.assert_outcomes(failed=1)
