"""The checks, one after the other, each in a process of its own: a table of what holds, and 1 where something does not."""

import argparse
import sys
import time
import traceback

from ..parent import HostGone, Refused, Silent
from .checks import CHECKS, Subject


def main():
    parser = argparse.ArgumentParser(
        prog="python3 -m moetune.conformance",
        description="Checks that a program is a host of kernels as docs/worker-protocol.md says.",
        epilog="Example: python3 -m moetune.conformance -- python3 mine.py",
    )
    parser.add_argument("--device", default="cpu", help="what the host is told to open: cpu, cuda:0, ...")
    parser.add_argument("--points", type=int, default=8, help="points of each space that are run, at most (default 8)")
    parser.add_argument("--patience", type=float, default=60, help="seconds that an answer may take (default 60)")
    parser.add_argument("--only", default="", help="only checks whose name holds this")
    parser.add_argument("command", nargs="+", help="the host and its arguments")
    given = parser.parse_args()
    subject = Subject(given.command, given.device, given.points, given.patience)
    failed = passed = 0
    for name, check in CHECKS.items():
        if given.only not in name:
            continue
        begin = time.monotonic()
        reason = _reason(check, subject)
        words = "ok    " if not reason else "FAILED"
        print(f"{words} {name} ({time.monotonic() - begin:.1f} s){': ' + reason if reason else ''}", flush=True)
        failed += bool(reason)
        passed += not reason
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def _reason(check, subject):
    try:
        check(subject)
    except AssertionError as error:
        return str(error) or traceback.format_exc(limit=-1).splitlines()[-2].strip()
    except Refused as error:
        return f"it answered {error}"
    except HostGone as error:
        return f"it is gone: {error}"
    except (Silent, ValueError, KeyError, TypeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
