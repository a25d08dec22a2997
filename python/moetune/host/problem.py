"""What a host is asked to compute: an operator with its sizes, in the words of a tuned configuration."""

from dataclasses import dataclass, fields

from .errors import BadRequest


@dataclass(frozen=True)
class Problem:
    """`attributes` are texts, as in a tuned configuration's "problem"."""

    op: str
    attributes: dict

    def number(self, name, default=None):
        """An integer attribute. Raises BadRequest where it is missing (without a default) or no integer."""
        text = self.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            return int(text)
        except (TypeError, ValueError):
            raise BadRequest(f"{self.op}: attribute {name} is {text!r}, not an integer") from None

    def word(self, name, default=None):
        text = self.attributes.get(name, default)
        if text is None:
            raise BadRequest(f"{self.op}: attribute {name} is missing")
        return text


@dataclass(frozen=True)
class MoeProblem:
    """The attributes of `fused_moe` (docs/operator.md), typed."""

    hidden: int
    intermediate: int  # Rows of gate, and of up, on this rank.
    experts: int  # Routed ones on this rank.
    top_k: int
    weights: str  # bf16, fp16, fp8, fp8-block, nvfp4, mxfp4
    activations: str  # a16, fp8-block, fp8
    activation: str  # swiglu, swiglu-clamped, relu2
    output: str  # bf16, f32
    global_experts: int
    shared_experts: int
    bias: bool
    given_routing: bool
    tp: int
    ep: int

    @staticmethod
    def of(problem):
        """Raises BadRequest for another operator, and for attributes that are missing or malformed."""
        if problem.op != "fused_moe":
            raise BadRequest(f"'{problem.op}' is not the operator fused_moe")
        usual = {"shared_experts": 0, "bias": 0, "given_routing": 0, "tp": 1, "ep": 1}
        values = {}
        for field in fields(MoeProblem):
            if field.type in (int, bool):
                default = problem.number("experts") if field.name == "global_experts" else usual.get(field.name)
                values[field.name] = field.type(problem.number(field.name, default))
            else:
                values[field.name] = problem.word(field.name)
        return MoeProblem(**values)

    def require(self, **wanted):
        """The first of these attributes that differs, in words; "" where none does: require(bias=False, ep=1)."""
        for name, value in wanted.items():
            have = getattr(self, name)
            accepted = value if isinstance(value, (tuple, set, frozenset)) else (value,)
            if have not in accepted:
                return f"{name} is {have}, and only {' or '.join(str(each) for each in accepted)} can be done"
        return ""
