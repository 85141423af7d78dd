"""What torch says without ddefuzz: a plain capture and draft_export of a subject, with no hooks."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch

from ddefuzz.checking.study import Plain
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.stages import as_exported
from ddefuzz.execute.subject import prepare
from ddefuzz.execute.user_code import said
from ddefuzz.instrument import torch_api


def plain_export(subject: Subject) -> Plain:
    """`torch.export.export`, non-strict."""
    return _timed(subject, torch.export.export)


def plain_draft(subject: Subject) -> Plain:
    """`torch.export.draft_export`."""
    return _timed(subject, torch.export.draft_export)


def _timed(subject: Subject, capture: Any) -> Plain:
    exported = as_exported(prepare(subject))
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        try:
            program = capture(
                exported.module, exported.args, exported.kwargs, dynamic_shapes=exported.dynamic_shapes, strict=False
            )
        except Exception as error:  # noqa: BLE001 what torch raises is the result
            return Plain(said(error)[:200], time.process_time() - started)
        seconds = time.process_time() - started
    report = getattr(program, torch_api.DRAFT_REPORT, None)
    return Plain("", seconds, len(getattr(report, "failures", ())))
