"""A host that breaks the protocol itself, in the way that its first argument names."""

import json
import os
import sys
import time

from moetune.host import RunFailed, program, server
from moetune.host.numpy_moe import OPERATORS, NumpyMoe

NumpyMoe.name = "crooked.moe"
KIND = sys.argv.pop(1)


def say(text):
    os.write(3, text.encode() + b"\n")


class Crooked(server.Server):
    """A server that is right but in one thing."""

    def _describe(self, session, fields):
        answer, files = super()._describe(session, fields)
        runner = answer["runners"][0]
        if KIND == "no_runners":
            answer["runners"] = []
        elif KIND == "no_default":
            runner["defaults"] = []
        elif KIND == "default_of_other_parameters":
            runner["defaults"][0]["stages"][0]["tactic"] = {"of_tomorrow": 1}
        elif KIND == "default_from_two_on":
            runner["defaults"][0]["from"] = 2
        elif KIND == "values_that_are_none":
            runner["schemes"][0]["stages"][0]["parameters"][0]["values"] = [None, 1.5]
        elif KIND == "endless_space":
            values = list(range(4000))
            runner["schemes"][0]["stages"][0]["parameters"][0]["values"] = values
            runner["schemes"][0]["stages"][0]["parameters"][1]["values"] = values
        elif KIND == "dies_at_describe":
            os._exit(3)
        return answer, files

    def _exclude(self, session, fields):
        answer, files = super()._exclude(session, fields)
        if KIND == "excludes_what_is_not_there":
            answer["excluded"] = [{"reason": "none", "points": [[5, 1000000]]}]
        return answer, files

    def _check(self, session, fields):
        answer, files = super()._check(session, fields)
        if KIND == "no_rows":
            return {**answer, "outputs": []}, files
        if KIND == "no_file":
            return answer, []
        if KIND == "words_on_the_socket":
            self.wire.connection.sendall(b"Compiling...\n")
        if KIND == "another_requests_answer":
            self.wire.send({"id": 12345, "damage": ""})
        while KIND == "talks_for_ever":
            self.wire.send({"id": self.request, "at": "run"})
            time.sleep(0.02)
        while KIND == "floods_the_socket":
            self.wire.send({"id": self.request, "at": "run"})
        if KIND == "says_nothing_at_check":
            time.sleep(1000)
        return answer, files

    def _measure(self, session, fields):
        answer, files = super()._measure(session, fields)
        if KIND == "fails_when_measured":
            raise RunFailed("an illegal instruction, once timed")
        if KIND == "dies_when_measured":
            os._exit(9)
        if KIND == "no_samples":
            answer["samples"] = []
        if KIND == "no_times":
            answer["samples"] = [{"us": None} for _ in answer["samples"]]
        if KIND == "times_of_zero":
            answer["samples"] = [{"us": 0.0} for _ in answer["samples"]]
        return answer, files


if KIND == "says_nothing":
    time.sleep(1000)
if KIND == "other_protocol":
    say(json.dumps({"hello": "crooked", "protocol": 99, "version": "7"}))
    time.sleep(1000)
if KIND == "no_hello":
    say("Welcome!")
    time.sleep(1000)
if KIND == "ends_at_once":
    print("no licence found")
    sys.exit(4)
program.Server = Crooked
program.serve("crooked", OPERATORS)
