"""Host your own kernels: derive a Runner, and hand a function that makes runners to serve().

    from moetune.host import MoeProblem, Runner, require, serve

    class Mine(Runner):
        name = "mine.moe"
        parameters = {"BLOCK": [32, 64, 128]}
        ...

    serve("mine", {"fused_moe": lambda problem, device: [Mine(problem)]})

`moetune tune MODEL --host "python3 mine.py"` then tunes it: candidates run in this process, which may crash, and moetune
judges what they compute. docs/hosts.md has the rules, examples/ a whole one.
"""

from .devices import open_torch
from .errors import BadRequest, CompileFailed, HostError, NotFound, OutOfMemory, RunFailed, Unsupported, WrongResult
from .problem import MoeProblem, Problem
from .program import serve
from .runner import Arguments, Runner, require
from .space import Space

__all__ = [
    "Arguments",
    "BadRequest",
    "CompileFailed",
    "HostError",
    "MoeProblem",
    "NotFound",
    "OutOfMemory",
    "Problem",
    "RunFailed",
    "Runner",
    "Space",
    "Unsupported",
    "WrongResult",
    "open_torch",
    "require",
    "serve",
]
