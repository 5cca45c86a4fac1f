"""What a team does with MLflow's own client, said to a hub: argv[1] is its address."""

import json
import math
import os
import sys
import tempfile

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "1"

import mlflow
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

uri = sys.argv[1]
mlflow.set_tracking_uri(uri)
client = MlflowClient(uri)


def refused(call, code):
    try:
        call()
    except MlflowException as error:
        assert error.error_code == code, (error.error_code, code, str(error))
        return
    raise AssertionError(f"not refused with {code}")


# Experiments.
assert client.get_experiment("0").name == "Default"
assert client.get_experiment_by_name("none") is None
team = mlflow.set_experiment("team").experiment_id
refused(lambda: client.create_experiment("team"), "RESOURCE_ALREADY_EXISTS")
client.set_experiment_tag(team, "owner", "ada")
assert client.get_experiment(team).tags["owner"] == "ada"
assert [one.name for one in client.search_experiments(filter_string="tags.owner = 'ada'")] == ["team"]
other = client.create_experiment("other")
client.rename_experiment(other, "another")
client.delete_experiment(other)
assert client.get_experiment(other).lifecycle_stage == "deleted"
assert other not in [one.experiment_id for one in client.search_experiments()]
client.restore_experiment(other)
gone = client.create_experiment("gone", tags={"team": "x"})
within = client.create_run(gone).info.run_id
client.delete_experiment(gone)
assert client.get_run(within).info.lifecycle_stage == "deleted", "its runs go with it"
refused(lambda: client.create_run(gone), "INVALID_PARAMETER_VALUE")
refused(lambda: client.log_metric(within, "loss", 1.0), "INVALID_PARAMETER_VALUE")
refused(lambda: client.rename_experiment(gone, "back"), "INVALID_STATE")
refused(lambda: client.delete_experiment(gone), "RESOURCE_DOES_NOT_EXIST")
client.restore_experiment(gone)
assert client.get_run(within).info.lifecycle_stage == "active", "and come back with it"

# Runs, nested ones too.
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "note.txt"), "w") as file:
    file.write("hello")
with mlflow.start_run(run_name="parent") as parent:
    mlflow.log_params({"depth": 3, "rate": 0.1})
    for step in range(5):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    mlflow.log_metrics({"accuracy": 0.9, "broken": float("nan"), "huge": math.inf}, step=7)
    mlflow.set_tag("phase", "trial run")
    mlflow.log_artifact(os.path.join(folder, "note.txt"))
    mlflow.log_artifacts(folder, "more/files")
    mlflow.log_text("caf\u00e9", "a b+c%&=.txt")
    mlflow.log_dict({"a": 1}, "d.json")
    with mlflow.start_run(run_name="child", nested=True) as child:
        mlflow.log_metric("loss", 0.05)
run = client.get_run(parent.info.run_id)
assert run.info.status == "FINISHED" and run.info.end_time and run.info.run_name == "parent"
assert run.data.params == {"depth": "3", "rate": "0.1"}, run.data.params
assert run.data.metrics["loss"] == 0.2 and math.isnan(run.data.metrics["broken"])
assert run.data.metrics["huge"] > 1e308
history = client.get_metric_history(run.info.run_id, "loss")
assert [(one.step, one.value) for one in history] == [(step, 1.0 / (step + 1)) for step in range(5)]
refused(lambda: client.log_param(run.info.run_id, "depth", 4), "INVALID_PARAMETER_VALUE")
refused(lambda: client.get_run("0" * 32), "RESOURCE_DOES_NOT_EXIST")
batch = [Metric("many", value, 1000 + value, value) for value in range(900)]
client.log_batch(run.info.run_id, batch, [Param("extra", "x")], [RunTag("k", "v")])
client.log_batch(run.info.run_id, batch)
assert len(client.get_metric_history(run.info.run_id, "many")) == 900
client.log_param(run.info.run_id, "long", "x" * 7000)
assert len(client.get_run(run.info.run_id).data.params["long"]) == 6000, "what is too long is cut"
for name in ["a?b", "../up", "a//b"]:
    refused(lambda: client.log_metric(run.info.run_id, name, 1.0), "INVALID_PARAMETER_VALUE")
twice = [Param("twice", "1"), Param("twice", "2")]
refused(lambda: client.log_batch(run.info.run_id, params=twice), "INVALID_PARAMETER_VALUE")
many = [Param(f"p{at}", "x") for at in range(101)]
# The client cuts a batch; what it would not send is refused.
client.log_batch(run.info.run_id, params=many)
assert client.get_run(run.info.run_id).data.params["p100"] == "x"
whole = client._tracking_client.store.log_batch
refused(lambda: whole(run.info.run_id, metrics=[], params=many, tags=[]), "INVALID_PARAMETER_VALUE")
client.set_tag(run.info.run_id, "gone", "1")
client.delete_tag(run.info.run_id, "gone")
assert "gone" not in client.get_run(run.info.run_id).data.tags

# Searches.
def names(**asked):
    return [one.info.run_name for one in client.search_runs([team], **asked)]

assert sorted(names()) == ["child", "parent"]
assert names(filter_string="metrics.loss < 0.1") == ["child"]
assert names(filter_string="params.depth = '3' and tags.phase LIKE 'trial%'") == ["parent"]
assert names(filter_string=f"tags.mlflow.parentRunId = '{run.info.run_id}'") == ["child"]
assert names(filter_string="attributes.run_name ILIKE 'PAR%'") == ["parent"]
assert names(order_by=["metrics.loss ASC"]) == ["child", "parent"]
assert names(order_by=["metrics.accuracy DESC"]) == ["parent", "child"]
page = client.search_runs([team], max_results=1)
assert len(page) == 1 and page.token
assert len(client.search_runs([team], max_results=1, page_token=page.token)) == 1
assert names(filter_string=f"run_id IN ('{run.info.run_id}')") == ["parent"]
assert names(filter_string="tags.phase IS NULL and metrics.loss > .01") == ["child"]
assert names(order_by=["metrics.broken DESC", "attributes.start_time DESC"])[0] == "parent"
for mistake in ["metrics.loss <", "attributes.colour = 'red'", "params.depth > '3'", "params.depth = 3"]:
    refused(lambda: client.search_runs([team], mistake), "INVALID_PARAMETER_VALUE")
refused(lambda: client.search_runs([team], order_by=["colour ASC"]), "INVALID_PARAMETER_VALUE")
refused(lambda: client.search_experiments(filter_string="metrics.loss < 1"), "INVALID_PARAMETER_VALUE")
client.delete_run(child.info.run_id)
assert names() == ["parent"]
assert names(run_view_type=ViewType.DELETED_ONLY) == ["child"]
client.restore_run(child.info.run_id)

# Artifacts.
paths = sorted(one.path for one in client.list_artifacts(run.info.run_id))
assert paths == ["a b+c%&=.txt", "d.json", "more", "note.txt"], paths
assert [one.path for one in client.list_artifacts(run.info.run_id, "more/files")] == ["more/files/note.txt"]
back = client.download_artifacts(run.info.run_id, "more", tempfile.mkdtemp())
assert open(os.path.join(back, "files", "note.txt")).read() == "hello"
assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/a b+c%&=.txt") == "caf\u00e9"

# The registry.
client.create_registered_model("digits", tags={"team": "vision"}, description="ten classes")
refused(lambda: client.create_registered_model("digits"), "RESOURCE_ALREADY_EXISTS")
source = f"runs:/{run.info.run_id}/more"
first = client.create_model_version("digits", source, run.info.run_id)
second = client.create_model_version("digits", source, run.info.run_id, tags={"a": "b"})
assert (str(first.version), str(second.version)) == ("1", "2")
client.set_registered_model_alias("digits", "champion", "2")
assert str(client.get_model_version_by_alias("digits", "champion").version) == "2"
refused(lambda: client.get_model_version_by_alias("digits", "nobody"), "INVALID_PARAMETER_VALUE")
refused(lambda: client.set_registered_model_alias("digits", "v1", "1"), "INVALID_PARAMETER_VALUE")
assert str(client.get_model_version_by_alias("digits", "latest").version) == "2"
for elsewhere in ["/etc/passwd", "file:///etc", "../up", f"{run.info.artifact_uri}/../../x", "http://a/%2e%2e/b"]:
    refused(lambda: client.create_model_version("digits", elsewhere, run.info.run_id), "INVALID_PARAMETER_VALUE")
refused(lambda: client.get_latest_versions("digits", ["Final"]), "INVALID_PARAMETER_VALUE")
client.transition_model_version_stage("digits", "1", "Production")
assert [str(one.version) for one in client.get_latest_versions("digits", ["Production"])] == ["1"]
client.set_model_version_tag("digits", "1", "checked", "yes")
found = client.search_model_versions("tags.checked = 'yes' and version_number >= 1")
assert [str(one.version) for one in found] == ["1"]
client.create_registered_model("copies")
copy = client.copy_model_version("models:/digits/1", "copies")
assert client.get_model_version_download_uri("copies", copy.version) == source
client.delete_registered_model("copies")
client.update_model_version("digits", "1", "the first")
assert client.get_model_version("digits", "1").description == "the first"
found = client.search_model_versions("name = 'digits'")
assert sorted(str(one.version) for one in found) == ["1", "2"]
assert [one.name for one in client.search_registered_models("name LIKE 'dig%'")] == ["digits"]
client.delete_model_version("digits", "2")
assert client.get_registered_model("digits").aliases == {}
third = client.create_model_version("digits", source, run.info.run_id)
assert str(third.version) == "3", "a number is given once"
client.rename_registered_model("digits", "numbers")
refused(lambda: client.get_registered_model("digits"), "RESOURCE_DOES_NOT_EXIST")
client.delete_registered_model("numbers")

# A model of Python: logged with the data that it was made from, registered, loaded by its alias.
class Twice(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return model_input * 2


import numpy

with mlflow.start_run(run_name="model") as made:
    mlflow.log_input(mlflow.data.from_numpy(numpy.ones((4, 2)), name="ones"), context="training", tags={"a": "b"})
    mlflow.log_input(mlflow.data.from_numpy(numpy.zeros((4, 2)), name="zeros"), context="testing")
    logged = mlflow.pyfunc.log_model(
        name="twice", python_model=Twice(), registered_model_name="twice", pip_requirements=["mlflow"]
    )
    mlflow.log_metric("quality", 0.8, model_id=logged.model_id)
inputs = client.get_run(made.info.run_id).inputs.dataset_inputs
assert sorted(one.dataset.name for one in inputs) == ["ones", "zeros"]
for found in ["name = 'ones'", "name = 'zeros'", "context = 'training'", "context IN ('testing')"]:
    assert names(filter_string=f"datasets.{found}") == ["model"], found
assert names(filter_string="datasets.name = 'twos'") == []
models = mlflow.search_logged_models([team], output_format="list")
assert [one.name for one in models] == ["twice"] and models[0].metrics[0].value == 0.8
for found, count in [("metrics.quality > 0.7", 1), ("status = 'READY'", 1), ("name = 'thrice'", 0)]:
    models = mlflow.search_logged_models([team], filter_string=found, output_format="list")
    assert len(models) == count, found
client.set_registered_model_alias("twice", "champion", "1")
for address in ("models:/twice/1", "models:/twice@champion", logged.model_uri):
    assert mlflow.pyfunc.load_model(address).predict(numpy.array([21]))[0] == 42

# What goes with models: parameters that stay, figures on data, and what scikit-learn logs by itself.
mlflow.log_model_params({"depth": "1"}, logged.model_id)
refused(lambda: mlflow.log_model_params({"depth": "2"}, logged.model_id), "INVALID_PARAMETER_VALUE")
ones = mlflow.data.from_numpy(numpy.ones((4, 2)), name="ones")
with mlflow.start_run(run_id=made.info.run_id):
    mlflow.log_metric("error", 0.25, model_id=logged.model_id, dataset=ones)
on_ones = mlflow.search_logged_models([team], datasets=[{"dataset_name": "ones"}], output_format="list")
assert [one.name for one in on_ones] == ["twice"]
from sklearn.linear_model import LinearRegression

mlflow.sklearn.autolog(silent=True)
with mlflow.start_run(run_name="by itself") as fitted:
    LinearRegression().fit(numpy.array([[0.0], [1.0], [2.0]]), [0.0, 2.0, 4.0])
mlflow.sklearn.autolog(disable=True)
fitted = client.get_run(fitted.info.run_id)
assert fitted.data.params["fit_intercept"] == "True" and fitted.data.metrics["training_r2_score"] > 0.99
answer = mlflow.sklearn.load_model(f"models:/{fitted.outputs.model_outputs[0].model_id}").predict([[3.0]])
assert abs(answer[0] - 6.0) < 1e-6, answer

# Tables and pictures; what is removed twice is gone.
with mlflow.start_run(run_name="tables") as shown:
    for row in range(2):
        mlflow.log_table({"row": [row], "text": [f"<b>{row}</b>"]}, "table.json")
    mlflow.log_image(numpy.zeros((4, 4, 3), dtype=numpy.uint8), key="black", step=1)
table = mlflow.load_table("table.json", run_ids=[shown.info.run_id])
assert table.values.tolist() == [[0, "<b>0</b>"], [1, "<b>1</b>"]]
assert len(client.list_artifacts(shown.info.run_id, "images")) == 2
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

for _ in range(2):
    get_artifact_repository(shown.info.artifact_uri).delete_artifacts("images")
assert [one.path for one in client.list_artifacts(shown.info.run_id)] == ["table.json"]

# What many threads say at once is all there, and equal times are in the order of values.
from concurrent.futures import ThreadPoolExecutor

together = client.create_run(team, run_name="threads").info.run_id
def log(place):
    client.log_metric(together, "m", place, timestamp=7, step=0)
    client.log_param(together, f"p{place}", place)
    client.set_tag(together, f"t{place}", place)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(log, range(40)))
found = client.get_run(together)
assert len(found.data.params) == 40 and sum(key.startswith("t") for key in found.data.tags) == 40
assert [one.value for one in client.get_metric_history(together, "m")] == list(range(40))

# What was trained here.
ours = client.get_experiment_by_name("my model")
trained = client.search_runs([ours.experiment_id])
assert len(trained) == 1, trained
trained = trained[0]
assert trained.info.status == "FINISHED" and trained.data.params["learning_rate"] == "0.1"
assert len(client.get_metric_history(trained.info.run_id, "loss")) == 30
files = [one.path for one in client.list_artifacts(trained.info.run_id)]
assert "summary.json" in files and "run.lock" not in files, files
summary = client.download_artifacts(trained.info.run_id, "summary.json", tempfile.mkdtemp())
assert json.load(open(summary))["state"] == "completed"
refused(lambda: client.log_metric(trained.info.run_id, "loss", 1.0), "INVALID_STATE")

# What was registered here: read as their own models are, and changed by nobody.
assert "ours" in [one.name for one in client.search_registered_models()]
version = client.get_model_version_by_alias("ours", "champion")
assert (str(version.version), version.description) == ("1", "the first")
assert version.run_id == trained.info.run_id
assert [one.run_id for one in client.search_model_versions("name = 'ours'")] == [trained.info.run_id]
back = mlflow.artifacts.download_artifacts("models:/ours@champion", dst_path=tempfile.mkdtemp())
assert json.load(open(os.path.join(back, "manifest.json")))["steps"] == 30
refused(lambda: client.create_registered_model("ours"), "RESOURCE_ALREADY_EXISTS")
refused(lambda: client.set_registered_model_tag("ours", "a", "b"), "INVALID_STATE")
refused(lambda: client.delete_registered_model("ours"), "INVALID_STATE")
print(json.dumps({"parent": run.info.run_id, "version": mlflow.__version__}))
