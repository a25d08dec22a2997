"""The helper's end of the worker protocol (docs/worker-protocol.md), for kernels that live in Python."""

import gc
import json
import os
import time
from collections import OrderedDict

from .devices import open_device
from .errors import BadRequest, CompileFailed, HostError, NotFound, OutOfMemory, RunFailed, Unsupported, WrongResult
from .errors import one_line
from .guarded import GuardedArguments
from .problem import Problem
from .space import intervals, read_tactic, runs_by_reason
from .tensors import map_file, read_tensors
from .wire import memory_file

PROTOCOL = 1
SCHEME = "single"
STAGE = "main"
MAX_SAMPLES = 64
MAX_CALLS = 1 << 16
MAX_TOKENS = 1 << 24
MAX_AT_ONCE = 1 << 16  # Numbers of tokens that a tactic is looked at for.
# Beyond this a default is not asked for one by one: it holds from there on.
MAX_DEFAULT_TOKENS = 1 << 16
# Recorded sequences keep memory on a GPU.
MAX_SEQUENCES = 64


class Host:
    """What a program of this kind offers: a name, versions, and runners by operator.

    operators: {"fused_moe": function(problem, device) -> [Runner, ...]}; the function raises Unsupported where it has
    none, with the reason. The first runner's default is the operator's. `open_device` makes the device of a name that
    moetune uses, "cpu" or "cuda:N"; without it the CPU is NumPy's, and GPUs are PyTorch's.
    """

    def __init__(self, name, operators, version="1", versions=None, open_device=open_device):
        self.name = name
        self.open_device = open_device
        self.operators = operators
        self.version = version
        self.versions = versions or {}


class _Weights:
    """Names of weights; asking for one places it on the device."""

    def __init__(self, device, specs, data):
        self._device = device
        self._specs = {spec.name: spec for spec in specs}
        self._data = data

    def __iter__(self):
        return iter(self._specs)

    def __contains__(self, name):
        return name in self._specs

    def __getitem__(self, name):
        spec = self._specs[name]
        raw = self._device.allocate(spec.bytes)
        self._device.write(raw, self._data[name])
        return self._device.view(raw, spec)

    def spec(self, name):
        return self._specs[name]


class _Kernel:
    def __init__(self, function):
        self.function = function
        self.selection = -1  # The last selection that it has run on while compiling was timed.


class Session:
    """One problem on one device."""

    def __init__(self, device, runners):
        self.device = device
        self.runners = {runner.name: runner for runner in runners}
        self.packed = {}
        self.samples = []
        self.selection = 0
        self.case_tokens = 0  # Of the selected case; its calls have fewer where they are of a part.
        self.kernels = {}
        self.sequences = OrderedDict()

    def runner(self, name):
        if name not in self.runners:
            raise NotFound(f"no runner named {name!r}", f"there are {', '.join(self.runners)}")
        return self.runners[name]

    def unload(self):
        self.sequences.clear()
        self.kernels.clear()
        self.samples = []
        self.packed = {}
        self.device.release()


class Server:
    """Answers requests until the parent hangs up. Not thread-safe."""

    def __init__(self, wire, host):
        self.wire = wire
        self.host = host
        self.sessions = {}
        self.request = 0
        self._files = []

    def run(self):
        self.wire.send({"hello": self.host.name, "protocol": PROTOCOL, "version": self.host.version})
        while (message := self.wire.receive()) is not None:
            fields, self._files = message
            try:
                self._answer(fields)
            finally:
                for file in self._files:
                    os.close(file)

    def _answer(self, fields):
        request = fields.get("id", 0)
        self.request = request if type(request) is int else 0
        files = []
        try:
            answer, files = self._perform(fields)
            json.dumps(answer, allow_nan=False)  # What a runner says of itself may be anything.
        except Exception as error:  # noqa: BLE001 - kernels are others' code: whatever they throw is an answer.
            for file in files:
                os.close(file)
            answer, files = self._error(error), []
        try:
            if self.request:
                self.wire.send({"id": self.request, **answer}, files)
        finally:
            for file in files:
                os.close(file)

    def _error(self, error):
        code = error.code if isinstance(error, HostError) else "internal"
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            code = OutOfMemory.code
        answer = {"error": {"code": code, "message": one_line(error), "hint": getattr(error, "hint", "")}}
        if not all(session.device.works() for session in self.sessions.values()):
            answer["lost"] = True
        return answer

    def _perform(self, fields):
        what = fields.get("do")
        if what == "open":
            return self._open(fields)
        handlers = {
            "describe": self._describe,
            "exclude": self._exclude,
            "load": self._load,
            "select": self._select,
            "check": self._check,
            "measure": self._measure,
            "prefetch": self._prefetch,
            "unload": self._unload,
        }
        if not isinstance(what, str) or what not in handlers:
            raise Unsupported(f"{what!r} is no request of this host")
        session = self.sessions.get(fields.get("session"))
        if session is None:
            raise NotFound(f"there is no session {fields.get('session')!r}", "open one")
        return handlers[what](session, fields)

    def _open(self, fields):
        number = _integer(fields, "session")
        problem = _problem(fields)
        options = _object(fields, "options", {})
        if problem.op not in self.host.operators:
            raise Unsupported(
                f"{self.host.name} has no kernels for '{problem.op}'", f"it has {', '.join(self.host.operators)}"
            )
        self.sessions.pop(number, None)
        device = self.host.open_device(options.get("device", "auto"))
        runners = self.host.operators[problem.op](problem, device)
        self.sessions[number] = Session(device, runners)
        # What an engine's packages consist of need not be looked through again whenever a graph is captured.
        gc.collect()
        gc.freeze()
        names = [{"name": runner.name, "version": runner.version} for runner in runners]
        return {"device": device.name, "runners": names}, []

    def _describe(self, session, fields):
        last = min(_integer(fields, "max_tokens", least=1, most=MAX_TOKENS), MAX_DEFAULT_TOKENS)
        runners = [_description(runner, last) for runner in session.runners.values()]
        return {"runners": runners, "versions": self.host.versions, "device_name": session.device.name}, []

    def _exclude(self, session, fields):
        runner = session.runner(fields.get("runner"))
        tokens = _integer(fields, "tokens", least=1, most=MAX_TOKENS)
        if fields.get("scheme", SCHEME) != SCHEME or fields.get("stage", STAGE) != STAGE:
            raise NotFound(f"{runner.name} has the scheme {SCHEME} with the stage {STAGE}")
        if "tactic" not in fields:
            return {"excluded": runner.space().excluded(lambda tactic: runner.excluded(tactic, tokens))}, []
        tactic = _tactic(runner, fields["tactic"])
        until = _integer(fields, "until", least=tokens, most=tokens + MAX_AT_ONCE)
        runs = runs_by_reason((at, runner.excluded(tactic, at)) for at in range(tokens, until + 1))
        return {"until": until, "excluded": [{"reason": why, "tokens": at} for why, at in runs.items()]}, []

    def _load(self, session, fields):
        layouts = fields.get("layouts")
        if not isinstance(layouts, list) or fields.get("scale") not in ("full", "subset"):
            raise BadRequest("load: expected layouts and a scale")
        wanted = []
        for item in layouts:
            runner = session.runner(item.get("runner") if isinstance(item, dict) else None)
            if item.get("layout") != runner.layout:
                raise NotFound(f"{runner.name} has no layout {item.get('layout')!r}", f"it has {runner.layout}")
            wanted.append(runner)
        session.unload()
        specs = read_tensors(fields.get("weights", []), "weights")
        if specs and len(self._files) != 1:
            raise BadRequest(f"load: {len(self._files)} files came with the weights, not 1")
        data = map_file(self._files[0], specs, "weights") if specs else {}
        for runner in wanted:
            session.packed[runner.name] = runner.pack(_Weights(session.device, specs, data))
        return {}, []

    def _select(self, session, fields):
        case_tokens = _case(fields)
        samples = _integer(fields, "samples", default=1, least=1, most=MAX_SAMPLES)
        arguments = fields.get("arguments")
        if not isinstance(arguments, list) or len(arguments) != samples or len(self._files) != samples:
            raise Unsupported(
                "this host makes no inputs: they must come with the request",
                "send arguments, with a file for each of the samples",
            )
        session.sequences.clear()
        session.samples = []
        session.selection += 1
        placed = []
        for item, file in zip(arguments, self._files):
            item = item if isinstance(item, dict) else {}
            inputs = read_tensors(item.get("inputs"), "inputs")
            outputs = read_tensors(item.get("outputs"), "outputs")
            if not outputs:
                raise BadRequest("select: arguments without an output")
            placed.append(GuardedArguments(session.device, inputs, map_file(file, inputs, "inputs"), outputs))
        session.samples = placed
        session.case_tokens = case_tokens
        for runner in session.runners.values():
            runner.selected(placed[0].arguments)
        return {}, []

    def _check(self, session, fields):
        runner, tactic = self._candidate(session, _object(fields, "candidate"))
        sample = _sample(session, fields)
        rows = _rows(fields, sample.outputs[0].spec)
        kernel, seconds = self._ready(session, runner, tactic, sample)
        self._say("run")
        outputs, damage = self._checked_run(session, runner, kernel, sample)
        specs = [each.spec for each in sample.outputs]
        pieces = [_gather(session.device, raw, spec, rows) for raw, spec in zip(outputs, specs)]
        answer = {
            "damage": damage,
            "compile_seconds": seconds,
            "outputs": [spec.to_json(len(rows)) for spec in specs],
        }
        return answer, [memory_file(pieces)]

    def _checked_run(self, session, runner, kernel, sample):
        # Damage may be what an earlier candidate did while it was timed. It is repaired, and what is found a second time
        # is this one's.
        for _ in range(2):
            sample.poison_outputs()
            try:
                with session.device.poisoned_memory():
                    returned = session.device.run(lambda: kernel(sample.arguments, session.packed.get(runner.name)))
            finally:
                damage = sample.damage()
            if not damage:
                break
        return _outputs(session.device, sample, returned), damage

    def _ready(self, session, runner, tactic, sample):
        """The kernel, compiled, and the seconds that took."""
        if runner.name not in session.packed:
            raise BadRequest(f"layout {runner.layout} of {runner.name} is not loaded")
        key = _key(runner, tactic)
        kernel = session.kernels.get(key)
        is_new = kernel is None
        if not is_new and not (runner.compiles_on_first_run and kernel.selection != session.selection):
            return kernel.function, 0.0
        self._say("compile")
        begin = time.perf_counter()
        try:
            if is_new:
                kernel = _Kernel(runner.compile(dict(tactic), sample.arguments))
            if runner.compiles_on_first_run:
                session.device.run(lambda: kernel.function(sample.arguments, session.packed[runner.name]))
        except (HostError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - see _answer.
            if type(error).__name__ == "OutOfMemoryError":
                raise
            raise CompileFailed(f"{_text(runner, tactic)}: {one_line(error)}") from error
        kernel.selection = session.selection
        session.kernels[key] = kernel
        return kernel.function, time.perf_counter() - begin

    def _measure(self, session, fields):
        candidates = fields.get("candidates")
        if not isinstance(candidates, list):
            raise BadRequest("measure: expected candidates")
        calls = _integer(fields, "calls", default=1, least=1, most=MAX_CALLS)
        if _integer(fields, "stage", default=-1) >= 1:
            raise NotFound("there is one stage")
        _sample(session, {})
        samples = []
        for item in candidates:
            runner, tactic = self._candidate(session, item)
            us = self._sequence(session, runner, tactic, calls)()
            samples.append({"us": us, **session.device.state()})
        return {"samples": samples}, []

    def _sequence(self, session, runner, tactic, calls):
        key = (*_key(runner, tactic), calls)
        sequence = session.sequences.get(key)
        if sequence is None:
            kernel, _ = self._ready(session, runner, tactic, session.samples[0])
            self._say("run")
            weights = session.packed[runner.name]
            made = [
                lambda arguments=session.samples[i % len(session.samples)].arguments: kernel(arguments, weights)
                for i in range(calls)
            ]
            while len(session.sequences) >= MAX_SEQUENCES:
                session.sequences.popitem(last=False)
            try:
                sequence = session.device.record(made, runner.capturable)
            except (HostError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - see _answer.
                raise RunFailed(f"{_text(runner, tactic)}: {one_line(error)}") from error
            session.sequences[key] = sequence
        session.sequences.move_to_end(key)
        return sequence

    def _prefetch(self, session, fields):
        candidates = [self._candidate(session, item) for item in fields.get("candidates", [])]
        selected = session.samples[0].arguments.tokens if session.samples else 0
        tokens = _integer(fields, "tokens", default=0, least=0, most=MAX_TOKENS)
        if tokens in (0, session.case_tokens):
            tokens = selected
        for runner in session.runners.values():
            if tactics := [tactic for of, tactic in candidates if of is runner]:
                runner.prefetch(tactics, tokens)

        def is_compiled(runner, tactic):
            kernel = session.kernels.get(_key(runner, tactic))
            has_run = kernel is not None and kernel.selection == session.selection and tokens == selected
            return has_run or runner.is_compiled(tactic, tokens)

        first = (at for at, (runner, tactic) in enumerate(candidates) if is_compiled(runner, tactic))
        return {"first": next(first, -1)}, []

    def _unload(self, session, fields):
        session.unload()
        return {}, []

    def _candidate(self, session, item):
        """The runner and the tactic that a message names."""
        if not isinstance(item, dict):
            raise BadRequest("candidate: expected an object")
        runner = session.runner(item.get("runner"))
        if item.get("version") != runner.version:
            raise NotFound(f"{runner.name} is version {runner.version}, not {item.get('version')!r}")
        stages = item.get("stages")
        if item.get("scheme") != SCHEME or not isinstance(stages, list) or len(stages) != 1:
            raise NotFound(f"{runner.name} has the scheme {SCHEME} with one stage")
        return runner, _tactic(runner, stages[0].get("tactic") if isinstance(stages[0], dict) else None)

    def _say(self, phase):
        if self.request:
            self.wire.send({"id": self.request, "at": phase})


def _description(runner, last):
    space = runner.space()

    def default(tokens):
        tactic = runner.default(tokens)
        return {name: tactic[name] for name in space.parameters}

    defaults = intervals(default, last)
    parameters = [
        {"name": name, "values": values, "meaning": runner.meanings.get(name, "")}
        for name, values in space.parameters.items()
    ]
    return {
        "name": runner.name,
        "version": runner.version,
        "layout": runner.layout,
        "deterministic": runner.deterministic,
        "schemes": [{"name": SCHEME, "stages": [{"name": STAGE, "parameters": parameters}]}],
        "defaults": [
            {"from": begin, "scheme": SCHEME, "stages": [{"name": STAGE, "tactic": tactic}]} for begin, tactic in defaults
        ],
    }


def _tactic(runner, value):
    tactic = read_tactic(value, "tactic")
    if tactic.keys() != runner.parameters.keys():
        raise NotFound(f"{runner.name} has the parameters {', '.join(runner.parameters)}, not {', '.join(tactic)}")
    return {name: tactic[name] for name in runner.parameters}


def _key(runner, tactic):
    return runner.name, tuple(tactic.items())


def _text(runner, tactic):
    return f"{runner.name}{{{','.join(f'{name}={value}' for name, value in tactic.items())}}}"


def _outputs(device, sample, returned):
    """The flat bytes of each output: where the kernel wrote it, or what it returned."""
    if returned is None:
        return [each.raw for each in sample.outputs]
    if not isinstance(returned, (tuple, list)):
        returned = [returned]
    if len(returned) != len(sample.outputs):
        raise WrongResult(f"the kernel returned {len(returned)} outputs, not {len(sample.outputs)}")
    return [device.raw(array, each.spec) for array, each in zip(returned, sample.outputs)]


def _gather(device, raw, spec, rows):
    whole = spec.row_bytes
    if rows == list(range(spec.shape[0])):
        return device.read(raw)
    return b"".join(device.read(raw[row * whole : (row + 1) * whole]) for row in rows)


def _integer(fields, name, default=None, least=None, most=None):
    value = fields.get(name, default)
    if type(value) is not int:
        raise BadRequest(f"{name}: expected an integer")
    if (least is not None and value < least) or (most is not None and value > most):
        raise BadRequest(f"{name}: {value} is out of range")
    return value


def _object(fields, name, default=None):
    value = fields.get(name, default)
    if not isinstance(value, dict):
        raise BadRequest(f"{name}: expected an object")
    return value


def _problem(fields):
    problem = _object(fields, "problem")
    attributes = _object(problem, "attributes")
    if not isinstance(problem.get("op"), str) or not all(isinstance(text, str) for text in attributes.values()):
        raise BadRequest("problem: expected an operator and texts")
    return Problem(problem["op"], attributes)


def _case(fields):
    case = _object(fields, "case")
    tokens = _integer(case, "tokens", least=1, most=MAX_TOKENS)
    seed = case.get("seed")
    if not isinstance(case.get("workload"), str) or not isinstance(seed, str) or not seed.isdecimal():
        raise BadRequest("case: expected a workload and a seed as texts")
    return tokens


def _sample(session, fields):
    number = _integer(fields, "sample", default=0)
    if not 0 <= number < len(session.samples):
        raise BadRequest(f"routing sample {number} of {len(session.samples)}", "select a case with more samples")
    return session.samples[number]


def _rows(fields, spec):
    rows = fields.get("rows", [])
    count = spec.shape[0] if spec.shape else 0
    if not isinstance(rows, list) or not all(type(row) is int and 0 <= row < count for row in rows):
        raise BadRequest(f"rows: expected positions below {count}")
    return rows
