"""Seeds of the swarms of all models in turns: each draws a cluster, a network, and faults that end.

    python benchmarks/swarm_seeds.py FOLDER [LAST]     # until each model has seeds 0 to LAST - 1, by default 10,000

FOLDER/progress.json has how far each model is (`next`), which seeds fell and what they cost; FOLDER/fallen.jsonl has,
for each that fell, why and the command that runs it again. It may be ended at any moment, and resumes where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ticdc_lab.simulate.swarm import fallen

MODELS: dict[str, tuple[str, dict[str, str], int]] = {
    "pd": ("pd", {}, 20),
    "v2": ("scheduler", {"variant": "v2"}, 50),
    "v3": ("scheduler", {"variant": "v3"}, 50),
    "v4": ("scheduler", {"variant": "v4"}, 50),
    "pipeline": ("pipeline", {}, 20),
    "changefeeds": ("changefeeds", {}, 20),
    "ddl-service": ("ddl-service", {}, 50),
}
"""The model, what its scenarios are asked for, and how many seeds a turn has."""


def main() -> None:
    folder, last = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "progress.json"
    progress: dict[str, dict[str, Any]] = {m: {"next": 0, "ran": 0, "cpu_s": 0.0, "fell": []} for m in MODELS}
    if kept.exists():
        progress |= json.loads(kept.read_text())
    while sum(turn(name, progress[name], folder, last) for name in MODELS):
        pass


def turn(name: str, one: dict[str, Any], folder: Path, last: int) -> bool:
    """Run the next seeds of a model; False where it has none left."""
    model, changes, n = MODELS[name]
    seeds = range(one["next"], min(one["next"] + n, last))
    started = time.process_time()
    for f in fallen(model, seeds, changes):
        one["fell"].append(f.seed)
        with (folder / "fallen.jsonl").open("a") as out:
            out.write(json.dumps({"name": name, **f._asdict()}) + "\n")
    one["cpu_s"] = round(one["cpu_s"] + time.process_time() - started, 1)
    one["ran"] += len(seeds)
    one["next"] = max(one["next"], seeds.stop)
    kept = folder / "progress.json"
    others = json.loads(kept.read_text()) if kept.exists() else {}
    kept.with_suffix(".new").write_text(json.dumps({**others, name: one}, indent=1))
    os.replace(kept.with_suffix(".new"), kept)
    return bool(seeds)


if __name__ == "__main__":
    main()
