"""The files with which the service runs in a container, and campaigns on a cluster: checked without an engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.campaign.real_campaign import wait_until

ROOT = Path(__file__).parents[2]
FILES = ROOT / "ci" / "fleet"


def linted(program: str, *words: str | Path, folder: Path = ROOT) -> str:
    """What a linter says, empty if it has nothing to say."""
    path = shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert path is not None, f"found no {program}, expected what `make test` installs"
    ended = subprocess.run([path, *words], cwd=folder, capture_output=True, text=True, check=False)
    return ended.stdout + ended.stderr if ended.returncode else ""


def ray_schema() -> Path:
    """The JSON schema that Ray has of cluster files."""
    spec = find_spec("ray")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "autoscaler" / "ray-schema.json"


def test_the_dockerfile_has_no_fault(tmp_path: Path) -> None:
    assert not linted("hadolint", FILES / "Dockerfile")
    wrong = tmp_path / "Dockerfile"
    wrong.write_text((FILES / "Dockerfile").read_text().replace("--yes ", ""))
    assert "DL3014" in linted("hadolint", wrong)


def test_the_script_for_slurm_has_no_fault(tmp_path: Path) -> None:
    assert not linted("shellcheck", FILES / "slurm.sh")
    wrong = tmp_path / "slurm.sh"
    wrong.write_text((FILES / "slurm.sh").read_text().replace('"$head"', "$head"))
    assert "SC2086" in linted("shellcheck", wrong)


def test_the_cluster_file_fits_the_schema_of_ray(tmp_path: Path) -> None:
    assert not linted("check-jsonschema", "--schemafile", ray_schema(), FILES / "ray.yaml")
    wrong = tmp_path / "ray.yaml"
    wrong.write_text((FILES / "ray.yaml").read_text().replace("max_workers: 8\nidle", "max_workers: many\nidle"))
    assert "'many' is not of type 'integer'" in linted("check-jsonschema", "--schemafile", ray_schema(), wrong)


def test_what_the_dockerfile_copies_is_a_package(tmp_path: Path) -> None:
    for sources, target in re.findall(r"^COPY (.*) (\S+)$", (FILES / "Dockerfile").read_text(), re.MULTILINE):
        for source in sources.split():
            place = tmp_path / source if target == "./" else tmp_path / target
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    ended = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert [*(tmp_path / "dist").glob("ddefuzz-*.whl")]
    assert (tmp_path / "ci" / "constraints.txt").is_file()


STUBS = {
    "scontrol": "echo node-a; sleep 0.2; echo node-b",  # who reads one line may be gone by then
    "srun": """\
while [ "${1#--}" != "$1" ]; do shift; done
echo "srun $*" >> "$LOG"
[ "$1" != hostname ] || echo 10.0.0.1""",
    "ray": 'echo "ray $*" >> "$LOG"',
    "ddefuzz": """\
trap 'echo saved >> "$LOG"; exit 130' TERM
echo "ddefuzz $*" >> "$LOG"
while [ ! -e "$LOG.end" ]; do sleep 0.1; done
exit 1""",
}
"""What the script calls, by name."""


@pytest.mark.parametrize("interrupted", [True, False])
def test_the_script_for_slurm_starts_a_cluster_and_ends_as_the_campaign_does(tmp_path: Path, interrupted: bool) -> None:
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    job = {"SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_ID": "7", "SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "4"}
    environment = os.environ | job | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "LOG": str(log)}
    with subprocess.Popen([FILES / "slurm.sh", "--budget", "9x"], env=environment) as script:
        wait_until(lambda: log.exists() and "ddefuzz" in log.read_text())
        if interrupted:
            script.send_signal(signal.SIGTERM)
        else:
            (tmp_path / "log.end").touch()
        assert script.wait() == (130 if interrupted else 1)
    lines = log.read_text().splitlines()
    assert "ddefuzz run --engine ray --address 10.0.0.1:20007 --budget 9x" in lines
    assert "srun ray start --head --block --node-ip-address=10.0.0.1 --port=20007 --num-cpus=4" in lines
    assert "srun ray start --block --address=10.0.0.1:20007 --num-cpus=4" in lines
    assert ("saved" in lines) == interrupted
