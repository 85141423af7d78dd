"""Export the examples of torch.export's documentation (ExportDB), for comparison with ddefuzz.

    DDEFUZZ_SITES=sites.jsonl python -m ddefuzz.site_hook ci/bench/exportdb.py

It prints one line of JSON at the end: the number of examples, and their outcomes.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections import Counter
from typing import Any

import torch
from torch._export.db.examples import all_examples


def main() -> None:
    """Export each example with its own inputs, in strict and in non-strict mode."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    examples: dict[str, Any] = all_examples()  # type: ignore[no-untyped-call]
    outcomes: Counter[str] = Counter()
    for case in examples.values():
        for strict in (False, True):
            torch._dynamo.reset()
            try:
                torch.export.export(
                    case.model,
                    case.example_args,
                    case.example_kwargs,
                    dynamic_shapes=case.dynamic_shapes,
                    strict=strict,
                )
            except Exception:  # noqa: BLE001 examples of what export refuses are among them
                outcomes["refused"] += 1
            else:
                outcomes["exported"] += 1
    found = {"examples": len(examples), "outcomes": dict(outcomes), "cpu_seconds": round(time.process_time(), 2)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
