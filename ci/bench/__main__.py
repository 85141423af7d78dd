"""`python ci/bench NAME` measures ddefuzz itself. `python ci/bench --help` lists what is measured."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # so that workers import the modules as ci.bench.…, too

from ci.bench.command import group  # noqa: E402 the path is set above
from ddefuzz.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main(group, "ci/bench")
