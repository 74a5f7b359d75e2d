# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What gets installed: everything under the one name ``kiln``, from a wheel, an sdist and an editable install."""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("frontend", "dialects", "passes", "lowering", "runtime", "tools")

pytestmark = pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="needs setuptools")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is packaged, so that the build leaves nothing in the checkout."""
    target = tmp_path_factory.mktemp("source")
    for name in (*FOLDERS, "kiln"):
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def build(source: Path, kind: str, out: Path) -> Path:
    code = f"from setuptools import build_meta as b; import os; print(b.build_{kind}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.strip().splitlines()[-1]


_PACKAGED = ("py", "toml", "js", "css", "j2")


def modules() -> set[str]:
    """Every module, table and part of a page of the checkout as a path in the wheel."""
    files = {
        f"kiln/{p.relative_to(ROOT)}" for f in FOLDERS for kind in _PACKAGED for p in (ROOT / f).rglob(f"*.{kind}")
    }
    # Names that TORCH_LOGS takes are modules of their own.
    files = {name.removeprefix("kiln/frontend/report/topics/") for name in files}
    return files | {f"kiln/{p.name}" for p in (ROOT / "kiln").glob("*.py")}


def test_wheel_holds_kiln_alone(source: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(source, "wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
        metadata = {n for n in names if ".dist-info/" in n}
        assert names - metadata == modules()
        entry_points = wheel.read(next(n for n in metadata if n.endswith("entry_points.txt"))).decode()
    assert "[torch_dynamo_backends]\nkiln = kiln.frontend.backend:kiln" in entry_points
    assert "kiln-opt = kiln.tools.kiln_opt:main" in entry_points


def test_wheel_from_sdist_is_the_same(source: Path, tmp_path: Path) -> None:
    sdist = build(source, "sdist", tmp_path)
    shutil.unpack_archive(sdist, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build(unpacked, "wheel", tmp_path)) as wheel:
        assert {n for n in wheel.namelist() if ".dist-info/" not in n} == modules()


def test_editable_install_adds_kiln_alone(source: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(source, "editable", tmp_path)) as wheel:
        wheel.extractall(tmp_path / "site")
    code = (
        f"import site, sys; before = list(sys.meta_path); sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        # An installed Kiln must not hide the one under test; an editable one has a finder of the same name.
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('__editable__')]\n"
        "site.addsitedir(sys.path[0])\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if f not in before] + before\n"
        "import importlib.util as u, kiln.passes.core, kiln.lowering.cpu, kiln.errors\n"
        f"assert kiln.__file__.startswith({str(source)!r}), kiln.__file__\n"
        f"print([n for n in {FOLDERS!r} if u.find_spec(n)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
