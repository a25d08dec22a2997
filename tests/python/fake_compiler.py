"""What compile_pool's children run in its test: jobs leave a file each, and some go wrong."""

import os
import pathlib
import time


def make_compiler(setup):
    if setup.get("broken"):
        raise RuntimeError("no compiler here")
    if setup.get("dies"):
        os._exit(3)
    folder = pathlib.Path(setup["folder"])
    (folder / f"child.{os.getpid()}").touch()

    def compile_one(job):
        print("noise")
        with (folder / f"begun.{job}").open("a") as file:
            file.write("x")
        if job.startswith("crash"):
            os.abort()
        if job.startswith("fail"):
            raise ValueError(f"{job} is no good")
        if job.startswith("slow"):
            while not (folder / "go").exists():
                time.sleep(0.01)
        (folder / f"done.{job}").touch()

    return compile_one
