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
    for file in _installed().files or ():
        if file.name == "moetune" and file.parent.name == "bin":
            path = pathlib.Path(file.locate()).resolve()
            if path.is_file():
                return path
    raise FileNotFoundError(_NOT_INSTALLED.format("command"))


def _installed():
    from importlib import metadata  # not needed by most, and slow to load

    try:
        return metadata.distribution("moetune")
    except metadata.PackageNotFoundError:
        raise FileNotFoundError(_NOT_INSTALLED.format("command")) from None


def __getattr__(name):
    if name == "__version__":
        try:
            return _installed().version
        except FileNotFoundError:
            return "0+source"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
