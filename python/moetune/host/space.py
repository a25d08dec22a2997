"""A runner's space: the product of its parameters' values, and its points by number."""

import math

from .errors import NotFound

MAX_POINTS = 1 << 20


class Space:
    """Points are numbered as in docs/worker-protocol.md: the last parameter varies fastest."""

    def __init__(self, parameters):
        """`parameters`: {name: [value, ...]}, numbers and words, in the order in which they are tried."""
        self.parameters = {name: list(values) for name, values in parameters.items()}
        self.size = math.prod(len(values) for values in self.parameters.values())
        if self.size > MAX_POINTS:
            raise ValueError(f"a space of {self.size} points; {MAX_POINTS} are the most")
        for name, values in self.parameters.items():
            if not values or len(set(values)) != len(values) or not all(type(v) in (int, str) for v in values):
                raise ValueError(f"parameter {name}: {values} are not distinct integers or words")

    def point(self, index):
        tactic = {}
        for name, values in reversed(self.parameters.items()):
            index, at = divmod(index, len(values))
            tactic[name] = values[at]
        return {name: tactic[name] for name in self.parameters}

    def excluded(self, why):
        """What `why(tactic)` gives a reason for: [{"reason", "points": [[first, last], ...]}]."""
        runs = runs_by_reason((index, why(self.point(index))) for index in range(self.size))
        return [{"reason": reason, "points": points} for reason, points in runs.items()]


def runs_by_reason(reasons):
    """{reason: [[first, last], ...]} of ascending (number, reason), where a reason is not ""."""
    runs = {}
    for number, reason in reasons:
        if not reason:
            continue
        numbers = runs.setdefault(reason, [])
        if numbers and numbers[-1][1] == number - 1:
            numbers[-1][1] = number
        else:
            numbers.append([number, number])
    return runs


def intervals(function, last):
    """Where a function of 1..last changes: [(from, value), ...]."""
    found = []
    for at in range(1, last + 1):
        value = function(at)
        if not found or found[-1][1] != value:
            found.append((at, value))
    return found


def read_tactic(value, place):
    """A tactic of a message: {name: number or word}."""
    if not isinstance(value, dict) or not all(type(each) in (int, str) for each in value.values()):
        raise NotFound(f"{place}: expected parameters with numbers or words")
    return dict(value)
