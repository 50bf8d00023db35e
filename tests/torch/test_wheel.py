"""The wheel: what is in it, what it needs, and that it works from where it was unpacked.

pip and scikit-build-core make it from the repository's pyproject.toml; only compiling is left out.
In its place stands a project that installs what this build tree has, by the real install rules.
MILLPOND_WHEEL names a wheel that was compiled, which is looked at instead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = os.environ.get("MILLPOND_WHEEL")
GLIBC_FLOOR = (2, 35)
# What every Linux with glibc has.
NEEDED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(wheel LANGUAGES NONE)
add_custom_target(millpond)
add_custom_target(millpond-cli)
install(CODE [[execute_process(
  COMMAND ${CMAKE_COMMAND} --install "BUILT" --component python --prefix "${CMAKE_INSTALL_PREFIX}"
  COMMAND_ERROR_IS_FATAL ANY)]] COMPONENT python)
"""
TRAIN = """
import sys, torch, millpond, millpond.torch
assert millpond.__file__.startswith(sys.argv[1]), millpond.__file__
torch.manual_seed(1)
mine = torch.nn.Parameter(torch.randn(5000))
theirs = torch.nn.Parameter(mine.detach().clone())
plain = torch.optim.AdamW([theirs], lr=1e-2)
streamed = millpond.torch.AdamW([mine], lr=1e-2, scratch=sys.argv[2])
for _ in range(3):
    mine.grad = torch.randn(5000)
    theirs.grad = mine.grad.clone()
    plain.step()
    streamed.step()
assert torch.equal(mine, theirs) and not torch.equal(mine.grad, mine)
print("trained with", streamed._streamed.store.runtime.plugin.path)
"""


def run(*command: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("MILLPOND_PLUGIN", "PYTHONPATH")}
    done = subprocess.run(
        command, env=clean | environment, text=True, timeout=200, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILED:
        return Path(COMPILED)
    pytest.importorskip("scikit_build_core", reason="scikit-build-core makes the wheel")
    built = Path(os.environ["MILLPOND_PLUGIN"]).resolve().parents[1]
    if not (built / "bin" / "millpond").is_file():
        pytest.skip(f"{built} has no millpond program")
    folder = tmp_path_factory.mktemp("wheel")
    project = folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT.replace("BUILT", str(built)))
    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
        f"--config-settings=cmake.source-dir={project}",
        f"--config-settings=build-dir={folder / 'build'}", "-w", str(folder), str(ROOT),
    )  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def test_what_is_in_it(wheel) -> None:
    assert wheel.name.startswith("millpond-") and "-py3-none-linux" in wheel.name
    with zipfile.ZipFile(wheel) as held:
        names = held.namelist()
        metadata = held.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    files = [name for name in names if ".dist-info/" not in name]
    binary = [name for name in files if not name.endswith((".py", ".md", "py.typed"))]
    assert sorted(binary) == ["millpond/bin/millpond", "millpond/libmillpond.so"]
    package = ROOT / "host_adapters" / "python"
    sources = {str(path.relative_to(package)) for path in package.glob("millpond/**/*.py")}
    assert {name for name in files if name.endswith(".py")} == sources
    assert "millpond/py.typed" in files
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert [need for need in needs if "extra ==" not in need] == ["Requires-Dist: protobuf>=4.25"]


@pytest.mark.parametrize("name", ["millpond/libmillpond.so", "millpond/bin/millpond"])
def test_what_it_needs_at_run_time(wheel, tmp_path, name: str) -> None:
    """Neither a C++ runtime nor Protocol Buffers, and no glibc newer than the floor."""
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf here")
    if name.endswith("bin/millpond") and not COMPILED:
        pytest.skip("a build tree links the program otherwise than a wheel that was compiled")
    with zipfile.ZipFile(wheel) as held:
        file = held.extract(name, tmp_path)
    dynamic = run("readelf", "-dW", file)
    assert set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) <= NEEDED, dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic, dynamic
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", file))
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions) <= GLIBC_FLOOR


def test_it_works_where_it_is_unpacked(wheel, tmp_path) -> None:
    place, scratch = tmp_path / "site", tmp_path / "scratch"
    scratch.mkdir()
    run(
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target",
        str(place), str(wheel),
    )  # fmt: skip
    trained = run(
        sys.executable, "-c", TRAIN, str(place), str(scratch), PYTHONPATH=str(place)
    )  # fmt: skip
    assert f"trained with {place}/millpond/libmillpond.so" in trained
    report = tmp_path / "doctor.json"
    run(
        sys.executable, "-m", "millpond", "doctor", str(scratch), "--no-drive", "--json",
        str(report), PYTHONPATH=str(place),
    )  # fmt: skip
    assert f"{place}/millpond/libmillpond.so" in report.read_text()
    assert list(scratch.iterdir()) == []
    copy = shutil.copy(place / "millpond" / "libmillpond.so", tmp_path / "other.so")
    asked = [sys.executable, "-c", "import millpond; print(millpond.default_plugin().path)"]
    assert run(*asked, PYTHONPATH=str(place), MILLPOND_PLUGIN=str(copy)).strip() == str(copy)


def test_a_checkout_says_where_the_program_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millpond", "doctor"], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT / "host_adapters" / "python")},
    )  # fmt: skip
    assert done.returncode == 2 and "pip install ." in done.stderr, done.stderr
