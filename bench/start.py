"""What it costs to begin: `import deniable`, `deniable --help`, and the size of an installed core.

CPU seconds of a whole process, the interpreter included, the best of several. The size is that of the files of deniable
and of every package that its core needs, as the installed packages list them.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

IMPORT_BAR, HELP_BAR, SIZE_BAR = 0.05, 0.3, 350
TIMES = 7
COMPILER = ("numba", "llvmlite")


def measure(command: list[str]) -> float:
    """The least CPU seconds of several runs of a command."""
    return min(_run(command) for _ in range(TIMES))


def _run(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def weigh_core() -> dict[str, int]:
    """Bytes of each package of the core: deniable, what it requires without extras, and what those require."""
    sizes: dict[str, int] = {}
    waiting = ["deniable"]
    while waiting:
        name = waiting.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another system or Python
            continue
        sizes[name] = sum(path.stat().st_size for file in found.files or [] if (path := Path(file.locate())).is_file())
        needed = [line for line in found.requires or [] if "extra ==" not in line]
        names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in needed]
        waiting += [each for each in names if each not in sizes and each not in waiting]
    package = Path(sys.modules["deniable"].__file__ or "").parent  # an editable install lists no files of its own
    sizes["deniable"] = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    return sizes


def main() -> int:
    """Print all three beside their bars; the exit code counts those that are missed."""
    import deniable  # noqa: F401  its place is asked for

    imported = measure([sys.executable, "-c", "import deniable"])
    helped = measure([str(Path(sys.executable).with_name("deniable")), "--help"])
    sizes = weigh_core()
    whole, without = (sum(size for name, size in sizes.items() if name not in left) for left in ((), COMPILER))
    met = {True: "met", False: "MISSED"}
    print(f"import deniable: {imported:.3f} CPU s (bar {IMPORT_BAR}: {met[imported <= IMPORT_BAR]})")
    print(f"deniable --help: {helped:.3f} CPU s (bar {HELP_BAR}: {met[helped <= HELP_BAR]})")
    print(f"core install: {whole >> 20} MB, without numba and LLVM {without >> 20} MB "
          f"(bar {SIZE_BAR}, or the reason in docs/dependencies.md)")  # fmt: skip
    for name, size in sorted(sizes.items(), key=lambda each: -each[1])[:6]:
        print(f"  {name:12} {size >> 20:4} MB")
    return int(imported > IMPORT_BAR) + int(helped > HELP_BAR)


if __name__ == "__main__":
    sys.exit(main())
