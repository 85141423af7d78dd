"""Imported once by the fork server: torch, and what a first export would otherwise import in every worker.

Nothing is exported here, so a new fork of the server is a cold process. Importing costs 5 s once. A cold export
then costs 0.1 CPU seconds instead of 0.7.
"""

from __future__ import annotations

import gc
import importlib
import os

UNSET = ("TORCH_LOGS", "TORCH_LOGS_OUT", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "TORCH_SYMBOLIZE_MODE")
"""torch's environment variables that change what a run prints, or stop torch from being imported (`TORCH_LOGS=""`)."""

SINGLE_THREADED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS")
"""A campaign runs one worker per core. A thread of the server would not survive its forks."""

MODULES = (
    "torch._dynamo.convert_frame",
    "torch._dynamo.backends.debugging",
    "torch._dynamo.backends.common",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.functional_export",
    "torch._dynamo.repro.after_aot",
    "torch._dynamo.repro.after_dynamo",
    "torch.export._trace",
    "torch._export.non_strict_utils",
    "torch._export.passes._node_metadata_hook",
    "torch._export.passes.replace_autocast_with_hop_pass",
    "torch._export.passes.replace_set_grad_with_hop_pass",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes.inline_invoke_subgraph",
    "torch._inductor.compiler_bisector",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental",
    "torch.fx.experimental.validator",
    "sympy.tensor.tensor",
    "torch.testing._internal.common_methods_invocations",
    "ddefuzz.execute.observe",
)
"""What the first captures import, found by comparing `sys.modules` before and after. Only the modules that import
the rest are listed.
"""


def preload() -> None:
    """Clean the environment, then import. A module that this torch does not have is left to the code that needs
    it.
    """
    for name in UNSET:
        os.environ.pop(name, None)
    for name in SINGLE_THREADED:
        os.environ[name] = "1"
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    # What is imported stays: without it every collection in a worker would visit (and copy) all of torch's objects.
    gc.collect()
    gc.freeze()


preload()
