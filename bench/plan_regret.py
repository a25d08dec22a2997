#!/usr/bin/env python3
"""What a plan loses to the best of all tactics, at every size that `bench_tactics` has measured exhaustively.

    bench_tactics --model glm-5 --tp 8 --host vllm --device cuda:0 --tokens 1,2,4,8 --out all.jsonl
    moetune tune glm-5 --tp 8 --host vllm --device cuda:0 --tokens 1,2,4,8 --budget 120s --out plan.json
    python3 bench/plan_regret.py plan.json all.jsonl

Times are medians of `all.jsonl` alone, for the plan's tactics too: both sides are from one run. For layers of one stage.
"""
import json
import math
import statistics
import sys

if len(sys.argv) != 3:
    sys.exit(__doc__)

times = {}  # (tokens, workload) -> {tactic text: median}
for line in open(sys.argv[2], encoding="utf-8"):
    row = json.loads(line)
    if row.get("stage") and "us" in row:
        times.setdefault((row["tokens"], row["workload"]), {})[row["tactic"]] = statistics.median(row["us"])
    elif "complete" in row and not row["complete"]:
        print("note: the exhaustive run ended before its end")


def text(decision):
    (stage,) = decision["stages"]
    return ",".join(f"{name}={value}" for name, value in stage["tactic"].items())


with open(sys.argv[1], encoding="utf-8") as file:
    (plan,) = json.load(file)["plans"]

print(f"{'tokens':>6}  {'workload':10} {'tactics':>7}  {'best':>10}  {'chosen':>10}  regret")
ratios = []
for (tokens, workload), by_tactic in sorted(times.items()):
    decision = next((d for d in plan["decisions"] if d["from"] <= tokens <= d["to"]), None)
    if decision is None or text(decision) not in by_tactic:
        print(f"{tokens:>6}  {workload:10} {len(by_tactic):>7}  the plan's tactic was not measured there")
        continue
    best, chosen = min(by_tactic.values()), by_tactic[text(decision)]
    ratios.append(chosen / best)
    print(f"{tokens:>6}  {workload:10} {len(by_tactic):>7}  {best:>7.1f} us  {chosen:>7.1f} us  {100 * (chosen / best - 1):.1f} %")
if ratios:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"regret: geometric mean {100 * (mean - 1):.2f} %, worst {100 * (max(ratios) - 1):.1f} %, over {len(ratios)} sizes")
