"""The checks, each with a host process of its own: a table of what holds, and 1 where something does not."""

import argparse
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

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
    parser.add_argument("--jobs", type=int, default=1, help="checks at a time (default 1)")
    parser.add_argument("--only", default="", help="only checks whose name holds this")
    parser.add_argument("command", nargs="+", help="the host and its arguments")
    given = parser.parse_args()
    subject = Subject(given.command, given.device, given.points, given.patience)
    checks = {name: check for name, check in CHECKS.items() if given.only in name}
    failed = 0
    with ThreadPoolExecutor(max(1, given.jobs)) as pool:
        done = pool.map(lambda check: _timed_reason(check, subject), checks.values())
        for name, (seconds, reason) in zip(checks, done):
            words = "ok    " if not reason else "FAILED"
            print(f"{words} {name} ({seconds:.1f} s){': ' + reason if reason else ''}", flush=True)
            failed += bool(reason)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed or not checks else 0


def _timed_reason(check, subject):
    begin = time.monotonic()
    reason = _reason(check, subject)
    return time.monotonic() - begin, reason


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
