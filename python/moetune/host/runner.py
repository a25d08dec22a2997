"""What a kernel's author writes: a Runner offers one family of kernels to the tuner."""

from .errors import Unsupported
from .space import Space


class Arguments(dict):
    """One call's arrays by name, inputs and outputs, on the device; `tokens` is how many rows there are."""

    tokens = 0


class Runner:
    """One implementation family of an operator, made for one problem on one device.

    Derive, set `name` and `parameters`, and write compile(). What the tuner does with it: every point of the space that
    is not excluded may be compiled, is run once on data whose right outputs are known, and is timed if it was right.
    An exception in compile() or in a kernel costs that candidate, no more; so does a crash.

    name        "my.triton": how decisions name it, for good.
    version     Raised whenever the kernels change meaning or speed: what was measured with another one is stale.
    parameters  {"BLOCK": [64, 128], ...}: integers and words, in the order in which they are tried.
    meanings    {"BLOCK": "rows of a tile"}: for people.
    layout      A name for how weights are held after pack().
    deterministic           Whether a kernel gives the same bits on every run.
    capturable              Whether a kernel can be captured in a CUDA graph: no synchronisation with the host.
    compiles_on_first_run   Whether a kernel compiles when it is first called with arguments of other sizes (Triton
                            does): it is then called once while the time for compiling runs.
    """

    name = ""
    version = 1
    parameters = {}
    meanings = {}
    layout = "rows"
    deterministic = True
    capturable = True
    compiles_on_first_run = False

    def default(self, tokens):
        """The tactic that runs untuned; valid for every number of tokens >= 1. It need not be in the space."""
        raise NotImplementedError

    def excluded(self, tactic, tokens):
        """Why this tactic cannot be used at that many tokens; "": it can."""
        return ""

    def pack(self, weights):
        """Weights as kernels take them. `weights` maps names to arrays: weights["w13"] places [experts, ...] on the device."""
        return {name: weights[name] for name in weights}

    def selected(self, arguments):
        """Told of each selected call before anything of it is compiled, prefetched or run."""

    def compile(self, tactic, arguments):
        """A kernel: a function of (arguments, packed weights) that writes the outputs, or returns them.

        `arguments` are those of the selected call, for kernels that are made for sizes. Raise CompileFailed, or anything
        else, with a readable reason.
        """
        raise NotImplementedError

    def prefetch(self, tactics, tokens):
        """A hint that these will be compiled soon for that many tokens, the first first. Must return at once."""

    def is_compiled(self, tactic, tokens):
        """Whether compiling this for that many tokens would take no time, as far as is known. Must return at once."""
        return True

    def space(self):
        return Space(self.parameters)


def require(reason):
    """Raises Unsupported with a reason that is not empty: require(moe.require(bias=False))."""
    if reason:
        raise Unsupported(reason)
