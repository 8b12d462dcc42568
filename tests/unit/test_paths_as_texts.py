"""What reads or writes a file takes its path as a text, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deniable.curator.synthesize.run import load_model as load_any
from deniable.errors import DataError, IntegrityError
from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.recoding import path_of_recoding, read_recoding
from deniable.learn import model as learned
from deniable.learn.training import Task, plan_training, train_model
from deniable.policy.budget import ZCDP
from deniable.synth import model as synthetic
from deniable.synth.linked import is_linked_file, load_linked
from learning import ROW, people, table

READERS: list[Callable[[Any], Any]] = [learned.load_model, synthetic.load, load_linked, load_any, read_recoding]


@pytest.mark.parametrize("read", [*READERS, read_tree])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_that_is_not_there_is_refused_by_name(
    read: Callable[[Any], Any], kind: Callable[[Path], Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"absent\.file"):
        read(kind(tmp_path / "absent.file"))


@pytest.mark.parametrize("read", READERS)
def test_a_file_of_another_form_is_refused_by_name(read: Callable[[Any], Any], tmp_path: Path) -> None:
    other = tmp_path / "other.file"
    other.write_text("{}")
    with pytest.raises((DataError, IntegrityError), match=r"other\.file"):
        read(str(other))


def test_a_model_is_written_and_read_by_a_text(tmp_path: Path) -> None:
    model = train_model(plan_training(table(), ROW, Task("ill", ("age",)), ZCDP(1)), people(50))
    place = str(tmp_path / "ill.json")
    learned.save_model(model, place)
    assert learned.load_model(place) == learned.load_model(Path(place)) == model
    assert not is_linked_file(place)
    assert path_of_recoding(place) == tmp_path / "ill.json.recoding.json"
