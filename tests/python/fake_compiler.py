"""What compile_pool's children run in its test: jobs leave a file each, and some go wrong."""

import os
import pathlib
import subprocess
import sys
import time


def _no_fork():
    raise BlockingIOError("too many processes")


def make_compiler(setup):
    folder = pathlib.Path(setup["folder"])
    (folder / f"server.{os.getpid()}").touch()
    if setup.get("broken"):
        raise RuntimeError("no compiler here")
    if setup.get("dies"):
        os._exit(3)
    if setup.get("childless"):
        os.fork = _no_fork
    while setup.get("late") and not (folder / "start").exists():
        time.sleep(0.01)

    def compile_one(job):
        print("noise")
        (folder / f"worker.{os.getpid()}").touch()
        with (folder / f"begun.{job}").open("a") as file:
            file.write("x")
        if job.startswith("crash"):
            os.abort()
        if job.startswith("fail"):
            raise ValueError(f"{job} is no good")
        if job.startswith("run"):
            subprocess.run([sys.executable, "-c", "import sys; print('noise'); sys.exit(3)"], check=True)
        if job.startswith("slow"):
            while not (folder / "go").exists():
                time.sleep(0.01)
        (folder / f"done.{job}").touch()

    return compile_one
