"""Texts that are not ours are printed as they are: neither brackets nor colons mean anything in them."""

import re
from pathlib import Path

import pytest

import deniable.cli
from deniable.cli.terminal import open_errors, open_output, stress


@pytest.mark.parametrize("console", [open_output, open_errors])
def test_a_text_is_printed_as_it_is(console, capsys):
    console().print("m:sound: [bold]x[/] :smile:")
    console().print(stress("a:car:", "[red]", before="[/]"))
    assert "".join(capsys.readouterr()) == "m:sound: [bold]x[/] :smile:\n[/]a:car:[red]\n"


def test_no_command_writes_markup_into_a_text():
    for file in Path(deniable.cli.__file__).parent.glob("*.py"):
        assert not re.search(r"\[(bold|dim|red|yellow|green)\b[^\]]*\]|\[/\]|markup=True", file.read_text()), file.name
