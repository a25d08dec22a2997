"""moetune's Python side: where the command and the library are, the C interface by ctypes (moetune.capi), and a host for
kernels that live in Python (moetune.host).

Importing it loads nothing; what only an installed wheel has is looked for when it is asked for.
"""

import pathlib

__all__ = ["command_path", "library_path"]


def library_path():
    """The pathlib.Path of libmoetune.so.1, for ctypes, cffi or a linker; FileNotFoundError in a source tree."""
    return _installed("lib", "libmoetune.so.1")


def command_path():
    """The pathlib.Path of the command `moetune` that was installed together with this package, wherever PATH leads;
    FileNotFoundError in a source tree."""
    return _installed("bin", "moetune")


def _installed(folder, name):
    # In the package itself, or in PREFIX where that is PREFIX/lib/python3.11/site-packages/moetune or
    # PREFIX/share/moetune/python/moetune; with pip's --target PREFIX, PREFIX/moetune.
    package = pathlib.Path(__file__).resolve().parent
    for above in [package, *package.parents[:4]]:
        path = above / folder / name
        if path.is_file():
            return path
    raise FileNotFoundError(f"{name} is not installed beside {package}: install a wheel, which scripts/wheel builds")


def __getattr__(name):
    if name == "__version__":
        from importlib import metadata  # slow to load

        try:
            return metadata.version("moetune")
        except metadata.PackageNotFoundError:
            return "0+source"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
