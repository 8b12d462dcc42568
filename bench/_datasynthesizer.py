"""DataSynthesizer's correlated mode (a Bayesian network of degree two); run by bench/synth.py in its environment.

    python _datasynthesizer.py coded.csv made.csv EPSILON [SEED]

Writes the synthetic table, and prints one line of JSON: CPU seconds of describing and generating, workers included.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")


def main(real: str, made: str, epsilon: str, seed: str = "0") -> None:
    """Describe and generate; every column is declared categorical, as its codes are."""
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    names = Path(real).read_text().split("\n", 1)[0].strip().split(",")
    rows = Path(real).read_text().count("\n") - 1
    before = _seconds()
    describer = DataDescriber(category_threshold=1000)
    describer.describe_dataset_in_correlated_attribute_mode(
        dataset_file=real,
        epsilon=float(epsilon),
        k=2,
        attribute_to_is_categorical=dict.fromkeys(names, True),
        seed=int(seed),
    )
    with tempfile.TemporaryDirectory() as folder:
        description = str(Path(folder) / "description.json")
        describer.save_dataset_description_to_file(description)
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(rows, description, seed=int(seed))
        generator.save_synthetic_data(made)
    print(json.dumps({"seconds": _seconds() - before}))


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main(*sys.argv[1:5])
