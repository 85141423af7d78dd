"""Run PyTorch's OpInfo samples under FakeTensorMode with every dim unbacked, for comparison with ddefuzz.

    DDEFUZZ_SITES=sites.jsonl python -m ddefuzz.site_hook ci/bench/opinfo.py --samples 6

It needs the package expecttest, as torch.testing._internal does. It prints one line of JSON at the end: the number of
calls, their outcomes, and the number of ops with a data-dependent error. `--seconds` limits the CPU seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map


def main() -> None:
    """Run each op with its first samples, in the order of the database or in an order drawn by a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=6, help="the most samples of an op")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="CPU seconds after which to stop")
    parser.add_argument("--seed", type=int, default=None, help="shuffle the ops, instead of their own order")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # torch logs the traceback of every failure of a fake kernel
    outcomes: Counter[str] = Counter()
    errors_of: Counter[str] = Counter()
    ops = list(op_db)
    if options.seed is not None:
        random.Random(options.seed).shuffle(ops)
    for op in ops:
        for sample in samples(op, options.samples):
            if time.process_time() > options.seconds:
                break
            outcome = call(op, sample)
            outcomes[outcome] += 1
            errors_of[op.name] += outcome == "data-dependent"
    counts = {
        "calls": outcomes.total(),
        "outcomes": dict(outcomes),
        "data_dependent_ops": len(+errors_of),
        "cpu_seconds": round(time.process_time(), 2),
    }
    sys.stdout.write(json.dumps(counts) + "\n")


def samples(op: Any, limit: int) -> Iterator[Any]:
    """The first samples of an op on the CPU, of its first dtype among those that models use."""
    dtypes = op.supported_dtypes("cpu")
    wanted = (torch.float32, torch.complex64, torch.int64, torch.bool)
    torch.manual_seed(0)
    try:
        dtype = next(one for one in (*wanted, *sorted(dtypes, key=str)) if one in dtypes)
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit)
    except Exception:  # noqa: BLE001 what cannot be made here (another package, another device) is no sample
        return


def call(op: Any, sample: Any) -> str:
    """Run the op on its sample with all dims of all tensors unbacked."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    mode.allow_scalar_outputs = True
    numbers = itertools.count()

    def unbacked(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        context: StatelessSymbolicContext[Any, Any] = StatelessSymbolicContext(
            dynamic_sizes=[DimDynamic.UNBACKED] * value.dim(),
            dynamic_strides=[DimDynamic.INFER_STRIDE] * value.dim(),
        )
        return mode.from_tensor(value, symbolic_context=context, source=ConstantSource(f"input{next(numbers)}"))

    try:
        first, args, kwargs = tree_map(unbacked, (sample.input, sample.args, sample.kwargs))
        with mode:
            op(first, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 the op is under test: whatever it raises is the answer
        return "data-dependent" if is_data_dependent(error) else "other"
    return "ok"


def is_data_dependent(error: BaseException | None) -> bool:
    """Whether the error or one of its causes is a data-dependent error."""
    if error is None or isinstance(error, GuardOnDataDependentSymNode) or "data-dependent" in str(error):
        return error is not None
    return is_data_dependent(error.__cause__ or error.__context__)


if __name__ == "__main__":
    main()
