"""`python -m deniable`: the same as the command `deniable`."""

from __future__ import annotations

from deniable.cli.main import main

if __name__ == "__main__":
    main()
