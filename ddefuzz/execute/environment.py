"""What an observation depends on besides the run: versions, the processor, and torch's settings of shape reasoning."""

from __future__ import annotations

import os
import platform

import hypothesis
import torch

from ddefuzz.execute.protocol import Environment
from ddefuzz.instrument import torch_api

SETTINGS = (
    torch_api.SHAPES_CONFIG,
    torch_api.BACKED_SIZE_OBLIVIOUS,
    torch_api.NO_STACK_TRACES,
)
"""torch's own settings. torch's environment variables are added to them."""

VARIABLES = ("TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "ATEN_CPU_CAPABILITY")
"""Prefixes of the environment variables that are recorded."""


def current(_: str = "") -> Environment:
    """The environment of this process. It can also run as a task of a pool (hence the argument), to describe
    the workers.
    """
    settings = [(api.path, str(api.get())) for api in SETTINGS]
    settings += sorted((name, value) for name, value in os.environ.items() if name.startswith(VARIABLES))
    return Environment(
        torch=str(torch.__version__),
        torch_git=torch.version.git_version or "",
        python=platform.python_version(),
        hypothesis=hypothesis.__version__,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        settings=tuple(settings),
    )
