"""moetune's Python side: where the command and the library are, the C interface by ctypes (moetune.capi), and a host for
kernels that live in Python (moetune.host).

Importing it loads nothing; what only an installed wheel has is looked for when it is asked for.
"""

import pathlib

__all__ = ["command_path", "library_path"]

_NOT_INSTALLED = "this moetune was not installed from a wheel: there is no {} beside it (scripts/wheel builds one)"


def library_path():
    """The pathlib.Path of libmoetune.so.1, for ctypes, cffi or a linker; FileNotFoundError outside of a wheel."""
    path = pathlib.Path(__file__).resolve().parent / "lib" / "libmoetune.so.1"
    if not path.is_file():
        raise FileNotFoundError(_NOT_INSTALLED.format(path.name))
    return path


def command_path():
    """The pathlib.Path of the command `moetune` that was installed together with this package, wherever PATH leads;
    FileNotFoundError outside of a wheel."""
    # From PREFIX/lib/python3.11/site-packages/moetune, or with pip's --target FOLDER from FOLDER/moetune.
    for above in list(pathlib.Path(__file__).resolve().parent.parents)[:4]:
        path = above / "bin" / "moetune"
        if path.is_file():
            return path
    raise FileNotFoundError(_NOT_INSTALLED.format("command"))


def __getattr__(name):
    if name == "__version__":
        from importlib import metadata  # slow to load

        try:
            return metadata.version("moetune")
        except metadata.PackageNotFoundError:
            return "0+source"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
