"""What a host excludes: points at a number of tokens, and one point from a number of tokens to another."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

from moetune.host import BadRequest, NotFound, Runner  # noqa: E402
from moetune.host.server import Host, Server, Session  # noqa: E402


class Mine(Runner):
    name = "mine"
    parameters = {"rows": [16, 32], "order": ["a", "b"]}

    def excluded(self, tactic, tokens):
        return "more rows than tokens" if tactic["rows"] > tokens else ""


class Exclude(unittest.TestCase):
    def ask(self, **fields):
        server = Server(None, Host("mine", {}))
        return server._exclude(Session(None, [Mine()]), {"runner": "mine", **fields})[0]

    def test_points_at_a_number_of_tokens(self):
        wanted = [{"reason": "more rows than tokens", "points": [[2, 3]]}]
        self.assertEqual(self.ask(tokens=20), {"excluded": wanted})
        self.assertEqual(self.ask(tokens=40), {"excluded": []})

    def test_one_point_from_a_number_of_tokens_to_another(self):
        tactic = {"order": "b", "rows": 32}
        wanted = [{"reason": "more rows than tokens", "tokens": [[20, 31]]}]
        self.assertEqual(self.ask(tokens=20, until=40, tactic=tactic), {"until": 40, "excluded": wanted})
        self.assertEqual(self.ask(tokens=32, until=32, tactic=tactic), {"until": 32, "excluded": []})

    def test_what_makes_no_sense_is_refused(self):
        for fields in ({"until": 19}, {"until": 1 << 20}, {}, {"until": "40"}):
            with self.assertRaises(BadRequest):
                self.ask(tokens=20, tactic={"rows": 32, "order": "b"}, **fields)
        with self.assertRaises(NotFound):
            self.ask(tokens=20, until=40, tactic={"rows": 32})


if __name__ == "__main__":
    unittest.main()
