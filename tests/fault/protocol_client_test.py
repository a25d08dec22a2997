"""A client of the worker protocol, made from docs/worker-protocol.md alone: another language's parent."""

import array
import json
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import program

REAL = os.environ.get("MOETUNE_REAL_WORKER", "moetune-worker")
FAULTY = os.environ.get("MOETUNE_FAULTY_WORKER", "moetune-worker-faulty")
FAULTY_PROBLEM = {"op": "faulty", "attributes": {"columns": "16"}}


def faulty(kind):
    return {"runner": "faulty.kinds", "version": 1, "scheme": "single",
            "stages": [{"name": "main", "tactic": {"kind": kind}}]}


class Helper:
    """One helper process and the conversation with it."""

    def __init__(self, program):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in range(3)]
        actions.append((os.POSIX_SPAWN_DUP2, theirs.fileno(), 3))
        self.pid = os.posix_spawn(program, [program, "--parent", str(os.getpid())], os.environ, file_actions=actions, setpgroup=0)
        self.status = None
        os.close(null)
        theirs.close()
        self.socket = ours
        self.socket.settimeout(60)
        self.received = b""
        self.files = []
        self.last_id = 0
        self.phases = []
        self.hello = self.line()

    def close(self):
        self.socket.close()
        self.wait()

    def wait(self, patience_s=20):
        """The exit status, negative for a signal."""
        deadline = time.monotonic() + patience_s
        while self.status is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        if self.status is None:
            raise TimeoutError("the helper goes on")
        return self.status

    def send(self, message, files=()):
        if files:
            message = {**message, "files": len(files)}
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        sent = self.socket.sendmsg([data], rights)
        self.socket.sendall(data[sent:])

    def line(self):
        while b"\n" not in self.received:
            data, files, _, _ = socket.recv_fds(self.socket, 1 << 16, 64)
            if not data:
                raise EOFError("the helper is gone")
            self.received += data
            self.files += files
        text, _, self.received = self.received.partition(b"\n")
        message = json.loads(text)
        taken, self.files = self.files[:message.get("files", 0)], self.files[message.get("files", 0):]
        message["taken"] = taken
        return message

    def ask(self, what, files=(), **fields):
        self.last_id += 1
        self.phases = []
        self.send({"do": what, "id": self.last_id, **fields}, files)
        while True:
            answer = self.line()
            assert answer["id"] == self.last_id, answer
            if "at" not in answer:
                return answer
            self.phases.append(answer["at"])


def contents(file):
    with os.fdopen(file, "rb") as opened:
        opened.seek(0)
        return opened.read()


def file_with(data):
    file = os.memfd_create("test")
    os.write(file, data)
    return file


class ProtocolTest(unittest.TestCase):
    def helper(self, program):
        helper = Helper(program)
        self.addCleanup(helper.close)
        self.assertEqual(helper.hello["hello"], "moetune-worker")
        self.assertEqual(helper.hello["protocol"], 1)
        return helper

    def answered(self, answer):
        self.assertNotIn("error", answer)
        return answer

    def opened(self, program=FAULTY, problem=None, options=None):
        helper = self.helper(program)
        answer = self.answered(helper.ask("open", session=1, problem=problem or FAULTY_PROBLEM, options=options or {}))
        return helper, answer


class Faulty(ProtocolTest):
    CASE = {"tokens": 2, "workload": "uniform", "seed": "0"}

    def selected(self):
        helper, answer = self.opened()
        self.assertEqual(answer["runners"], [{"name": "faulty.kinds", "version": 1}])
        self.answered(helper.ask("load", session=1, scale="full", layouts=[{"runner": "faulty.kinds", "layout": "plain"}]))
        self.answered(helper.ask("select", session=1, case=self.CASE, samples=1))
        return helper

    def rows(self, answer):
        (output,) = answer["outputs"]
        self.assertEqual(output["name"], "y")
        self.assertEqual(output["type"], "f32")
        (file,) = answer["taken"]
        data = contents(file)
        count = output["shape"][0] * output["shape"][1]
        self.assertEqual(len(data), 4 * count)
        return struct.unpack(f"={count}f", data)

    def test_rows_of_a_check_come_in_a_file(self):
        helper = self.selected()
        answer = self.answered(helper.ask("check", session=1, candidate=faulty("good"), sample=0, rows=[1]))
        self.assertEqual(answer["damage"], "")
        self.assertEqual(self.rows(answer), tuple(2.0 * (16 + i) for i in range(16)))
        self.assertEqual(helper.phases, ["compile", "run"])

    def test_arguments_can_be_given(self):
        helper = self.selected()
        inputs = [{"name": "x", "type": "f32", "shape": [1, 3]}]
        outputs = [{"name": "y", "type": "f32", "shape": [1, 3]}]
        file = file_with(struct.pack("=3f", 1, 2, 3))
        self.addCleanup(os.close, file)
        self.answered(helper.ask("select", [file], session=1, case={**self.CASE, "tokens": 1}, samples=1,
                                 arguments=[{"inputs": inputs, "outputs": outputs}]))
        answer = self.answered(helper.ask("check", session=1, candidate=faulty("good"), sample=0, rows=[0]))
        self.assertEqual(self.rows(answer), (2.0, 4.0, 6.0))

    def test_samples_are_measured(self):
        helper = self.selected()
        answer = self.answered(helper.ask("measure", session=1, candidates=[faulty("good"), faulty("fast")], stage=-1, calls=3))
        self.assertEqual([sample["us"] for sample in answer["samples"]], [150, 100])

    def test_a_candidates_error_is_an_answer(self):
        helper = self.selected()
        error = helper.ask("check", session=1, candidate=faulty("throw"), sample=0, rows=[0])["error"]
        self.assertEqual(error["code"], "run")
        self.assertIn("of its own making", error["message"])
        self.answered(helper.ask("check", session=1, candidate=faulty("good"), sample=0, rows=[0]))

    def test_a_lost_device_is_said(self):
        helper = self.selected()
        answer = helper.ask("check", session=1, candidate=faulty("loses_the_device"), sample=0, rows=[0])
        self.assertTrue(answer["lost"])
        self.assertIn("error", answer)

    def test_a_crash_closes_the_connection(self):
        helper = self.selected()
        with self.assertRaises((EOFError, ConnectionResetError)):
            helper.ask("check", session=1, candidate=faulty("abort"), sample=0, rows=[0])
        self.assertNotEqual(helper.wait(), 0)

    def test_hints_have_no_answer(self):
        helper = self.selected()
        helper.send({"do": "prefetch", "session": 1, "candidates": [faulty("good"), faulty("fast")]})
        self.answered(helper.ask("unload", session=1))

    def test_looking_ahead_tells_what_is_compiled(self):
        helper = self.selected()
        wanted = [faulty("crash"), faulty("good"), faulty("fast")]
        self.assertEqual(helper.ask("prefetch", session=1, candidates=wanted[:1])["first"], -1)
        self.assertEqual(helper.ask("prefetch", session=1, candidates=wanted)["first"], 1)
        self.assertEqual(helper.ask("prefetch", session=1, candidates=[])["first"], -1)

    def test_what_makes_no_sense_is_an_error_and_no_end(self):
        helper = self.selected()
        good = faulty("good")
        bad = [("nonsense", {"session": 1}), ("check", {"session": 9, "candidate": good, "rows": [0]}), ("check", {}),
               ("check", {"session": 1}), ("check", {"session": 1, "candidate": {**good, "runner": "none"}, "rows": [0]}),
               ("check", {"session": 1, "candidate": {**good, "stages": []}, "rows": [0]}),
               ("check", {"session": 1, "candidate": good, "rows": [99]}), ("check", {"session": 1, "candidate": good, "rows": 3}),
               ("check", {"session": 1, "candidate": good, "sample": 7, "rows": [0]}),
               ("select", {"session": 1, "case": {**self.CASE, "seed": 0}}), ("select", {"session": 1, "case": self.CASE, "samples": 0}),
               ("select", {"session": 1, "case": self.CASE, "arguments": [{"inputs": [], "outputs": []}]}),
               ("load", {"session": 1, "layouts": [], "scale": "half"}), ("open", {"session": 2, "problem": {"op": "x", "attributes": {}}}),
               ("measure", {"session": 1, "candidates": 4}), ("ceilings", {"session": 1}), ("ceilings", {"session": 1, "read_bytes": -1}),
               ("ceilings", {"session": 1, "read_bytes": 1 << 20}), (7, {"session": 1})]
        for what, fields in bad:
            answer = helper.ask(what, **fields)
            self.assertIn("error", answer, (what, fields))
            self.assertTrue(answer["error"]["message"])
        self.answered(helper.ask("select", session=1, case=self.CASE, samples=1))
        self.answered(helper.ask("check", session=1, candidate=good, sample=0, rows=[0]))

    def test_what_is_no_message_ends_the_conversation(self):
        for data in [b"words\n", b"[1]\n", b'{"do": "open", "files": 3}\n', b"x" * (17 << 20)]:
            helper = self.helper(FAULTY)
            try:
                helper.socket.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertEqual(helper.wait(), 1, data[:20])

    def test_it_ends_when_the_parent_hangs_up(self):
        helper = self.selected()
        helper.socket.close()
        helper.wait()


class Real(ProtocolTest):
    """moetune's own helper, with a problem and a candidate out of a tuned configuration."""

    def tuned_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            model, out = os.path.join(folder, "config.json"), os.path.join(folder, "tuned.json")
            with open(model, "w") as file:
                json.dump(program.TINY, file)
            subprocess.run([program.BINARY, "tune", model, "--device", "cpu", "--tokens", "8", "--budget", "300ms", "--out", out],
                           check=True, capture_output=True)
            with open(out) as file:
                return json.load(file)["plans"][0]

    def test_a_layer_is_opened_loaded_checked_and_timed(self):
        plan = self.tuned_plan()
        helper, answer = self.opened(REAL, plan["problem"], {"device": "cpu", "threads": "1", "seed": "0"})
        self.assertIn("cpu", answer["device"])
        candidate = {name: plan["decisions"][0][name] for name in ["runner", "version", "scheme", "stages"]}
        self.assertIn({"name": candidate["runner"], "version": candidate["version"]}, answer["runners"])
        self.answered(helper.ask("load", session=1, scale="full", layouts=[{"runner": plan["runner"], "layout": plan["layout"]}]))
        self.answered(helper.ask("select", session=1, case={"tokens": 3, "workload": "uniform", "seed": "0"}, samples=2))
        answer = self.answered(helper.ask("check", session=1, candidate=candidate, sample=1, rows=[0, 2]))
        (output,) = answer["outputs"]
        self.assertEqual((output["name"], output["type"], output["shape"]), ("output", "bf16", [2, 64]))
        self.assertNotIn(b"\xff\xff", contents(answer["taken"][0]), "every value was written")
        answer = self.answered(helper.ask("measure", session=1, candidates=[candidate] * 3, stage=-1, calls=2))
        self.assertTrue(all(sample["us"] > 0 for sample in answer["samples"]), answer)
        answer = self.answered(helper.ask("ceilings", session=1, read_bytes=4 << 20))
        self.assertEqual(answer["read_bytes"], 4 << 20)
        self.assertTrue(answer["read_bytes_per_s"] > 1e8 and answer["operations_per_s"] > 1e8, answer)
        self.assertIn("1 threads", answer["read"])

    def test_a_problem_that_makes_no_sense_is_refused(self):
        helper = self.helper(REAL)
        for attributes in [{}, {"hidden": "x"}, {"hidden": "64", "intermediate": "32", "experts": "0", "top_k": "2", "weights": "bf16"}]:
            answer = helper.ask("open", session=1, problem={"op": "fused_moe", "attributes": attributes}, options={"device": "cpu"})
            self.assertIn("error", answer)

    def test_by_hand_it_says_what_it_is(self):
        run = subprocess.run([REAL], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("protocol 1", run.stderr)


if __name__ == "__main__":
    unittest.main()
