# SPDX-License-Identifier: Apache-2.0
"""pip makes a wheel without a compiler, and installs it; the installed package finds the library
by its soname.  The examples run."""
import os
import re
import shutil
import subprocess
import sys

import pytest

import pawl
from conftest import HERE, SOON

PACKAGE = os.path.dirname(HERE)


def command(*args, **how):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=3 * SOON, **how)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_pip_install(tmp_path):
    source = tmp_path / "python"        # pip writes into the folder that it builds
    unwanted = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(PACKAGE, source, ignore=unwanted)
    venv = tmp_path / "venv"
    command(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(venv))
    python = str(venv / "bin" / "python")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PAWL_", "PIP_"))}
    env["CC"] = "/bin/false"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    how = ["--no-build-isolation", "--no-deps", "--no-index"]
    command(*pip, "wheel", *how, "-w", str(tmp_path), str(source), env=env)
    assert (tmp_path / f"pawl-{pawl.__version__}-py3-none-any.whl").exists()
    command(*pip, "install", *how, str(source), env=env)
    env["LD_LIBRARY_PATH"] = os.path.dirname(os.path.abspath(os.environ["PAWL_LIBRARY"]))
    script = "import pawl\nwith pawl.Engine() as e: print(pawl.__file__, e.push(int, '7').result())"
    said = command(python, "-c", script, env=env, cwd=tmp_path)
    assert said.startswith(str(venv)) and said.endswith(" 7\n")


@pytest.mark.parametrize("example", sorted(os.listdir(os.path.join(PACKAGE, "examples"))))
def test_example(example):
    assert command(sys.executable, os.path.join(PACKAGE, "examples", example), "--quick")


def test_example_of_the_readme():
    with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
    assert len(blocks) == 1
    exec(blocks[0], {})
