"""What a host of kernels must do, a function each. A check fails with words for the author of the host."""

import itertools
import math
import os
import signal
import subprocess
import time

from ..parent import HostGone, Parent, Refused, file_with
from .moe_case import ATTRIBUTES, EXPERTS, HIDDEN, PROBLEM, Layer, Sample, why_wrong

CHECKS = {}
NOWHERE = 999


def check(function):
    CHECKS[function.__name__] = function
    return function


class Subject:
    """The program under test."""

    def __init__(self, command, device, points, patience_s):
        self.command = command
        self.options = {"device": device}
        self.points = points
        self.patience_s = patience_s
        self.layer = Layer()

    def start(self):
        parent = Parent(self.command, self.patience_s)
        try:
            parent.hello = parent.line()
        except BaseException:
            parent.close()
            raise
        return parent

    def opened(self):
        host = self.start()
        try:
            host.opened = host.ask("open", session=1, problem=PROBLEM, options=self.options)
            host.runners = host.ask("describe", session=1, max_tokens=64)["runners"]
        except BaseException:
            host.close()
            raise
        return host

    def ready(self, tokens=5, samples=1):
        """A host with weights and inputs in place."""
        host = self.opened()
        try:
            load(host, self.layer)
            host.samples = select(host, tokens, samples)
        except BaseException:
            host.close()
            raise
        return host


def load(host, layer, session=1):
    file = file_with(*layer.data())
    try:
        layouts = [{"runner": runner["name"], "layout": runner["layout"]} for runner in host.runners]
        host.ask("load", [file], session=session, scale="full", layouts=layouts, weights=layer.tensors())
    finally:
        os.close(file)


def select(host, tokens, samples=1, session=1):
    made = [Sample(tokens, number) for number in range(samples)]
    files = [file_with(*sample.data()) for sample in made]
    try:
        case = {"tokens": tokens, "workload": "uniform", "seed": "0"}
        arguments = [sample.arguments() for sample in made]
        host.ask("select", files, session=session, case=case, samples=samples, arguments=arguments)
    finally:
        for file in files:
            os.close(file)
    return made


def default_of(runner, tokens):
    """The candidate that the runner says is its default at that many tokens."""
    last = [interval for interval in runner["defaults"] if interval["from"] <= tokens][-1]
    return candidate_of(runner, last["scheme"], last["stages"])


def candidate_of(runner, scheme, stages):
    return {"runner": runner["name"], "version": runner["version"], "scheme": scheme, "stages": stages}


def rows_of(host, answer, rows):
    """The rows of a check, as bytes. Fails where they are not what the answer says."""
    (output,) = answer["outputs"]
    same = (output["name"], output["type"], output["shape"]) == ("output", "bf16", [len(rows), HIDDEN])
    assert same, f"the rows are described as {output}, not output, bf16, [{len(rows)}, {HIDDEN}]"
    assert len(host.files) == 1, f"{len(host.files)} files came with the rows, not 1"
    data = host.file()
    width = 2 * HIDDEN
    assert len(data) == width * len(rows), f"the file has {len(data)} bytes for {len(rows)} rows of {width}"
    return [data[i * width : (i + 1) * width] for i in range(len(rows))]


def check_right(subject, host, candidate, sample, number=0):
    """Runs a candidate and judges every row. Returns the rows."""
    rows = list(range(sample.tokens))
    answer = host.ask("check", session=1, candidate=candidate, sample=number, rows=rows)
    assert answer["damage"] == "", f"damage: {answer['damage']}"
    found = rows_of(host, answer, rows)
    for token, row in zip(rows, found):
        wrong = why_wrong(row, sample.right_row(subject.layer, token))
        assert not wrong, f"{candidate['stages']} at {sample.tokens} tokens, row {token}: {wrong}"
    return found


def refused(host, what, wanted=None, files=(), **fields):
    """That a request is answered with an error that says something, and the host goes on."""
    try:
        answer = host.ask(what, files, **fields)
    except Refused as error:
        assert str(error).strip(": "), f"{what}: an error without words"
        if wanted is not None:
            assert error.code in wanted, f"{what}: the error is {error.code}, not {' or '.join(wanted)}"
        return
    raise AssertionError(f"{what} {fields} was answered with {answer}, not with an error")


def points_of(stage):
    """Every point of a stage's space in the protocol's order: the last parameter varies fastest."""
    names = [parameter["name"] for parameter in stage["parameters"]]
    values = [parameter["values"] for parameter in stage["parameters"]]
    return [dict(zip(names, point)) for point in itertools.product(*values)]


@check
def hello(subject):
    with subject.start() as host:
        assert isinstance(host.hello.get("hello"), str), f"the first line is {host.hello}, without a name in 'hello'"
        assert host.hello.get("protocol") == 1, f"it speaks protocol {host.hello.get('protocol')}, not 1"
        assert isinstance(host.hello.get("version"), str), "there is no 'version'"


@check
def by_hand_it_says_what_it_is(subject):
    run = subprocess.run(subject.command, capture_output=True, text=True, timeout=subject.patience_s, check=False)
    assert run.returncode == 2, f"started by hand it exits with {run.returncode}, not 2"
    assert run.stderr.strip(), "started by hand it says nothing on standard error"


@check
def open_names_device_and_runners(subject):
    with subject.opened() as host:
        assert isinstance(host.opened.get("device"), str), f"'device' is {host.opened.get('device')!r}"
        for runner in host.opened["runners"]:
            assert isinstance(runner["name"], str) and type(runner["version"]) is int, f"a runner is {runner}"


@check
def describe_is_a_space_with_a_default(subject):
    with subject.opened() as host:
        names = [runner["name"] for runner in host.runners]
        assert names and len(set(names)) == len(names), f"the runners are {names}"
        for runner in host.runners:
            _check_description(runner)
        again = host.ask("describe", session=1, max_tokens=64)["runners"]
        assert again == host.runners, "asked twice, it describes itself differently"


def _check_description(runner):
    assert isinstance(runner["layout"], str), f"{runner['name']}: 'layout' is {runner['layout']!r}"
    schemes = {scheme["name"]: scheme["stages"] for scheme in runner["schemes"]}
    assert schemes, f"{runner['name']} has no scheme"
    for stage in itertools.chain(*schemes.values()):
        for parameter in stage["parameters"]:
            values = parameter["values"]
            good = values and len(set(values)) == len(values) and all(type(value) in (int, str) for value in values)
            assert good, f"{parameter['name']}: {values} are not distinct integers or words"
    begins = [interval["from"] for interval in runner["defaults"]]
    ascending = all(a < b for a, b in zip(begins, begins[1:]))
    assert begins and begins[0] == 1 and ascending, f"defaults begin at {begins}, not at 1 and then upwards"
    for interval in runner["defaults"]:
        stages = schemes[interval["scheme"]]
        for stage, chosen in zip(stages, interval["stages"], strict=True):
            wanted = [parameter["name"] for parameter in stage["parameters"]]
            assert sorted(chosen["tactic"]) == sorted(wanted), f"a default has the parameters {sorted(chosen['tactic'])}"


@check
def exclude_names_points_of_the_space(subject):
    with subject.opened() as host:
        for runner in host.runners:
            for scheme in runner["schemes"]:
                for stage in scheme["stages"]:
                    _check_excluded(host, runner, scheme, stage)
        refused(host, "exclude", session=1, runner="nobody", scheme="single", stage="main", tokens=1)


def _check_excluded(host, runner, scheme, stage):
    size = math.prod(len(parameter["values"]) for parameter in stage["parameters"])
    address = {"runner": runner["name"], "scheme": scheme["name"], "stage": stage["name"]}
    answer = host.ask("exclude", session=1, tokens=5, **address)
    for group in answer["excluded"]:
        assert group["reason"], "points are excluded without a reason"
        for first, last in group["points"]:
            assert 0 <= first <= last < size, f"points [{first}, {last}] of {size}"


@check
def the_default_is_right_at_every_size(subject):
    with subject.ready() as host:
        for tokens in (1, 2, 3, 5, 17):
            (sample,) = select(host, tokens)
            for runner in host.runners:
                check_right(subject, host, default_of(runner, tokens), sample)


@check
def points_of_the_space_are_right(subject):
    with subject.ready(tokens=9) as host:
        for runner in host.runners:
            for scheme in runner["schemes"]:
                if len(scheme["stages"]) != 1:
                    continue
                stage = scheme["stages"][0]
                for tactic in _some_points(subject, host, runner, scheme, stage):
                    chosen = candidate_of(runner, scheme["name"], [{"name": stage["name"], "tactic": tactic}])
                    check_right(subject, host, chosen, host.samples[0])


def _some_points(subject, host, runner, scheme, stage):
    address = {"runner": runner["name"], "scheme": scheme["name"], "stage": stage["name"]}
    answer = host.ask("exclude", session=1, tokens=9, **address)
    out = {
        number
        for group in answer["excluded"]
        for first, last in group["points"]
        for number in range(first, last + 1)
    }
    left = [point for number, point in enumerate(points_of(stage)) if number not in out]
    step = max(1, len(left) // subject.points)
    return left[::step][: subject.points]


@check
def phases_are_told(subject):
    with subject.ready() as host:
        candidate = default_of(host.runners[0], 5)
        host.ask("check", session=1, candidate=candidate, sample=0, rows=[0])
        assert host.phases[-1:] == ["run"] and set(host.phases) <= {"compile", "run"}, f"a first check said {host.phases}"


@check
def rows_are_those_asked_for(subject):
    with subject.ready() as host:
        candidate = default_of(host.runners[0], 5)
        everything = check_right(subject, host, candidate, host.samples[0])
        for rows in ([4], [3, 0], [0, 1, 2, 3, 4], []):
            answer = host.ask("check", session=1, candidate=candidate, sample=0, rows=rows)
            assert rows_of(host, answer, rows) == [everything[row] for row in rows], f"rows {rows} are others"


@check
def samples_are_told_apart(subject):
    with subject.ready(samples=3) as host:
        candidate = default_of(host.runners[0], 5)
        for number, sample in enumerate(host.samples):
            check_right(subject, host, candidate, sample, number)


@check
def the_same_bits_come_twice_from_deterministic_runners(subject):
    with subject.ready() as host:
        for runner in host.runners:
            if runner.get("deterministic", True):
                candidate = default_of(runner, 5)
                first = check_right(subject, host, candidate, host.samples[0])
                assert first == check_right(subject, host, candidate, host.samples[0]), f"{runner['name']} gave other bits"


@check
def measure_gives_a_time_for_each(subject):
    with subject.ready(samples=2) as host:
        for runner in host.runners:
            candidate = default_of(runner, 5)
            host.ask("check", session=1, candidate=candidate, sample=0, rows=[0])
            for calls in (1, 4):
                answer = host.ask("measure", session=1, candidates=[candidate, candidate], stage=-1, calls=calls)
                times = [sample["us"] for sample in answer["samples"]]
                assert len(times) == 2 and all(time > 0 for time in times), f"two candidates took {times}"


@check
def what_was_not_checked_may_be_measured(subject):
    with subject.ready() as host:
        answer = host.ask("measure", session=1, candidates=[default_of(host.runners[0], 5)], stage=-1, calls=1)
        assert answer["samples"][0]["us"] > 0


@check
def a_time_is_of_what_ran(subject):
    """Calls cannot take longer than it took to answer."""
    with subject.ready(tokens=17) as host:
        candidate = default_of(host.runners[0], 17)
        host.ask("measure", session=1, candidates=[candidate], stage=-1, calls=16)
        begin = time.perf_counter()
        answer = host.ask("measure", session=1, candidates=[candidate], stage=-1, calls=16)
        wall_us = (time.perf_counter() - begin) * 1e6
        claimed = 16 * answer["samples"][0]["us"]
        assert claimed <= wall_us, f"16 calls took {claimed:.0f} us by its own account, and {wall_us:.0f} us by ours"


@check
def hints_have_no_answer(subject):
    with subject.ready() as host:
        host.tell("prefetch", session=1, candidates=[default_of(host.runners[0], 5)])
        host.tell("prefetch", session=1, candidates=[])
        host.tell("nonsense")
        check_right(subject, host, default_of(host.runners[0], 5), host.samples[0])


@check
def looking_ahead_tells_what_is_compiled(subject):
    with subject.ready() as host:
        candidate = default_of(host.runners[0], 5)
        check_right(subject, host, candidate, host.samples[0])
        try:
            first = host.ask("prefetch", session=1, tokens=5, candidates=[candidate] * 2).get("first", 0)
        except Refused as error:
            assert error.code == "unsupported", f"the error is {error.code}"
        else:
            assert first == 0, f"both candidates have run, and the first that is compiled is said to be number {first}"


@check
def unknown_fields_are_ignored(subject):
    with subject.ready() as host:
        candidate = {**default_of(host.runners[0], 5), "of_tomorrow": [1]}
        host.ask("check", session=1, candidate=candidate, sample=0, rows=[0], of_tomorrow={"a": 1})


@check
def what_makes_no_sense_is_an_error_and_no_end(subject):
    with subject.ready() as host:
        good = default_of(host.runners[0], 5)
        stage = good["stages"][0]
        refused(host, "of_tomorrow", ["unsupported"], session=1)
        refused(host, "check", session=NOWHERE, candidate=good, rows=[0])
        refused(host, "check", session=1)
        refused(host, "check", session=1, candidate={**good, "runner": "nobody"}, sample=0, rows=[0])
        refused(host, "check", session=1, candidate={**good, "version": good["version"] + 1}, sample=0, rows=[0])
        refused(host, "check", session=1, candidate={**good, "stages": []}, sample=0, rows=[0])
        unknown = [{**stage, "tactic": {**stage["tactic"], "of_tomorrow": 1}}]
        refused(host, "check", session=1, candidate={**good, "stages": unknown}, sample=0, rows=[0])
        refused(host, "check", session=1, candidate=good, sample=0, rows=[5])
        refused(host, "check", session=1, candidate=good, sample=0, rows=[-1])
        refused(host, "check", session=1, candidate=good, sample=7, rows=[0])
        refused(host, "measure", session=1, candidates=4)
        refused(host, "measure", session=1, candidates=[good], calls=0)
        refused(host, "describe", session=1, max_tokens=0)
        refused(host, "load", session=1, scale="half", layouts=[])
        refused(host, "load", session=1, scale="full", layouts=[{"runner": good["runner"], "layout": "of tomorrow"}])
        refused(host, 7, session=1)
        load(host, subject.layer)
        (sample,) = select(host, 5)
        check_right(subject, host, good, sample)


@check
def problems_that_cannot_be_served_are_refused(subject):
    with subject.start() as host:
        for problem in (
            {"op": "of_tomorrow", "attributes": {}},
            {"op": "fused_moe", "attributes": {}},
            {"op": "fused_moe", "attributes": {**ATTRIBUTES, "hidden": "many"}},
            {"op": "fused_moe", "attributes": {**ATTRIBUTES, "weights": "of_tomorrow"}},
            {"op": "fused_moe"},
        ):
            refused(host, "open", session=1, problem=problem, options=subject.options)
        host.ask("open", session=1, problem=PROBLEM, options=subject.options)


@check
def files_of_other_lengths_are_refused(subject):
    with subject.ready() as host:
        layouts = [{"runner": runner["name"], "layout": runner["layout"]} for runner in host.runners]
        sample = Sample(5, 0)
        case = {"tokens": 5, "workload": "uniform", "seed": "0"}
        for data in (b"", b"x" * 100):
            file = file_with(data)
            fields = {"session": 1, "scale": "full", "layouts": layouts, "weights": subject.layer.tensors()}
            refused(host, "load", files=[file], **fields)
            refused(host, "select", files=[file], session=1, case=case, samples=1, arguments=[sample.arguments()])
            os.close(file)
        load(host, subject.layer)
        select(host, 5)


@check
def unload_and_load_again(subject):
    with subject.ready() as host:
        candidate = default_of(host.runners[0], 5)
        check_right(subject, host, candidate, host.samples[0])
        host.ask("unload", session=1)
        refused(host, "check", session=1, candidate=candidate, sample=0, rows=[0])
        load(host, subject.layer)
        (sample,) = select(host, 3)
        check_right(subject, host, default_of(host.runners[0], 3), sample)


@check
def sessions_do_not_meet(subject):
    with subject.ready() as host:
        host.ask("open", session=2, problem=PROBLEM, options=subject.options)
        candidate = default_of(host.runners[0], 5)
        refused(host, "check", session=2, candidate=candidate, sample=0, rows=[0])
        check_right(subject, host, candidate, host.samples[0])


@check
def a_session_can_be_opened_again(subject):
    with subject.ready() as host:
        host.ask("open", session=1, problem=PROBLEM, options=subject.options)
        refused(host, "check", session=1, candidate=default_of(host.runners[0], 5), sample=0, rows=[0])
        load(host, subject.layer)
        (sample,) = select(host, 5)
        check_right(subject, host, default_of(host.runners[0], 5), sample)


@check
def an_expert_that_comes_twice_counts_twice(subject):
    with subject.ready() as host:
        sample = Sample(2, 0)
        sample.ids = [[3, 3], [EXPERTS - 1, EXPERTS - 1]]
        file = file_with(*sample.data())
        case = {"tokens": 2, "workload": "uniform", "seed": "0"}
        host.ask("select", [file], session=1, case=case, samples=1, arguments=[sample.arguments()])
        os.close(file)
        check_right(subject, host, default_of(host.runners[0], 2), sample)


@check
def what_is_no_message_ends_it(subject):
    for data in (b"words\n", b"[1]\n", b'{"do": "open", "files": 3}\n'):
        with subject.start() as host:
            host.send_raw(data)
            assert host.wait(20) == 1, f"after {data!r} it ends with {host.status}, not 1"


@check
def it_ends_when_the_parent_hangs_up(subject):
    with subject.ready() as host:
        host.socket.close()
        assert host.wait(10) is not None, "it goes on 10 s after its parent hung up"


@check
def ctrl_c_is_for_the_parent(subject):
    with subject.ready() as host:
        os.kill(host.pid, signal.SIGINT)
        check_right(subject, host, default_of(host.runners[0], 5), host.samples[0])


@check
def nothing_is_left_behind(subject):
    """What it has started ends with it."""
    with subject.ready() as host:
        group = host.pid
        host.socket.close()
        host.wait(10)
        deadline = time.monotonic() + 10
        while _runs(group) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs(group), "processes of its group go on after it"


def _runs(group):
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat", encoding="utf-8", errors="replace") as file:
                state, _, its_group = file.read().rpartition(")")[2].split()[:3]
        except (ValueError, OSError):
            continue
        if int(its_group) == group and state != "Z":
            return True
    return False


@check
def a_dying_candidate_is_a_closed_socket(subject):
    """For the suite itself: a host that is killed is seen to be gone."""
    with subject.ready() as host:
        os.kill(host.pid, signal.SIGKILL)
        try:
            host.ask("unload", session=1)
        except HostGone:
            return
        raise AssertionError("an answer came from a dead host")
