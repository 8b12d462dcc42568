"""Texts that are not ours are printed as they are: neither brackets nor colons mean anything in them."""

import re
from pathlib import Path

import pytest

import deniable.cli
from deniable.cli.main import COMMANDS, GROUPS, build_command
from deniable.cli.terminal import open_errors, open_output, stress


@pytest.mark.parametrize("console", [open_output, open_errors])
def test_a_text_is_printed_as_it_is(console, capsys):
    console().print("m:sound: [bold]x[/] :smile:")
    console().print(stress("a:car:", "[red]", before="[/]"))
    assert "".join(capsys.readouterr()) == "m:sound: [bold]x[/] :smile:\n[/]a:car:[red]\n"


def test_no_command_writes_markup_into_a_text():
    for file in Path(deniable.cli.__file__).parent.glob("*.py"):
        assert not re.search(r"\[(bold|dim|red|yellow|green)\b[^\]]*\]|\[/\]|markup=True", file.read_text()), file.name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["anonymize", "x.csv", "--k", "x"], "'x' is not a whole number."),
        (["anonymize", "x.csv", "--suppress", "much"], "'much' is not a number"),
        (["attack", "x.csv", "--attacks", "0"], "'0' is not a whole number of at least 1."),
        (["attack", "x.csv", "--fail-above", "7"], "'7' is not a number between 0 and 1."),
    ],
)
def test_a_value_of_another_type_is_refused_in_plain_words(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        build_command(words)(words, standalone_mode=True)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", [*COMMANDS, *GROUPS])
def test_help_shows_types_in_words(name, capsys):
    command = build_command([name])
    with pytest.raises(SystemExit):
        command([name, *(["init"] if name == "policy" else []), "--help"], standalone_mode=True)
    shown = capsys.readouterr().out
    assert not re.search(r"<(str|int|float|list\[|int range|float range)", shown), shown
