#!/usr/bin/env python3
"""Do two tunings that know nothing of each other come to choices of the same worth?

Tunes a layer twice from nothing (no journal, no configuration, no compiled kernels), then measures both plans against the default, in turns,
and prints for each number of tokens what each choice gains, and the geometric mean of their ratio.

    python3 bench/two_cold_runs.py build/release/bin/moetune qwen3-30b-a3b --weights nvfp4 --budget 60s
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog="Other flags go to tune and bench.")
parser.add_argument("moetune")
parser.add_argument("model")
parser.add_argument("--budget", default="60s", help="of each tuning")
parser.add_argument("--tokens", default="1..1024")
parser.add_argument("--rounds", type=int, default=2, help="how often both plans are measured")
parser.add_argument("--out", help="where the record goes (JSON)")
options, layer = parser.parse_known_args()


def run(command, *arguments, cache):
    done = subprocess.run([options.moetune, command, options.model, "--tokens", options.tokens, *layer, *arguments, "--json"],
                          stdout=subprocess.PIPE, env={**os.environ, "XDG_CACHE_HOME": cache}, check=False)
    if done.returncode != 0:
        sys.exit(f"{command} failed with status {done.returncode}")
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as folder:
    plans = [os.path.join(folder, f"{name}.json") for name in "ab"]
    for plan in plans:
        tuned = run("tune", "--no-journal", "--budget", options.budget, "--out", plan, cache=plan + ".cache")
    gains = [{}, {}]
    for turn in range(options.rounds):
        # The other one first each time: what drifts meets both.
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            measured = run("bench", "--workload", "uniform", "--config", plans[which], cache=plans[which] + ".cache")
            for row in measured["rows"]:
                gains[which].setdefault(row["tokens"], []).append(math.log(row["speedup"]))

mean = [{tokens: sum(logs) / len(logs) for tokens, logs in side.items()} for side in gains]
differences = {tokens: mean[0][tokens] - mean[1][tokens] for tokens in mean[0]}
print(f"{options.model} {' '.join(layer)} on {tuned['device']['name']}, {options.budget} each")
print("tokens  first run  second run   ratio")
for tokens, difference in differences.items():
    print(f"{tokens:6}  {math.exp(mean[0][tokens]):9.3f}  {math.exp(mean[1][tokens]):10.3f}  {math.exp(difference):6.3f}")
ratio = math.exp(sum(differences.values()) / len(differences))
print(f"geometric mean of the ratio: {ratio:.4f}")
if options.out:
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"model": options.model, "flags": layer, "budget": options.budget, "device": tuned["device"]["name"],
                   "gains": [{str(t): math.exp(g) for t, g in side.items()} for side in mean], "ratio": ratio}, file, indent=1)
