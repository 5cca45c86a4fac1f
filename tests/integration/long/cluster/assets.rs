//! Statistics and vocabularies of a model on a cluster: they go along with the job, come with a config map, or are made
//! in the pods from the data. In each case the weights are those of a run on one machine.

use std::ffi::OsStr;
use std::path::PathBuf;

use fake_cluster::{Cluster, NAMESPACE, Operator, job, wait_until};
use serde_json::{Value, json};

use super::stage::{SHARED, newest, weights_hash};
use crate::assets::experiment;
use crate::support::{PROGRAM, Workplace};

/// A cluster, and a place with an experiment whose records need two files.
struct Scene {
    place: Workplace,
    file: String,
    cluster: Cluster,
    _operator: Operator,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::of_program(OsStr::new(PROGRAM));
        let operator = Operator::start(&cluster);
        let place = Workplace::new();
        let file = experiment(&place);
        place.write("spec.yaml", SHARED);
        Self { place, file, cluster, _operator: operator }
    }

    /// The weights that one process comes to.
    fn alone(&self, sets: &[&str]) -> Value {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let args = [self.file.as_str(), "--set", "micro_batches=2"];
        let args: Vec<&str> = args.into_iter().chain(sets).collect();
        self.place.train(&args)["weights_hash"].clone()
    }

    /// The data as the pods see it.
    fn data(&self) -> String {
        self.place.path().join("work/people.csv").display().to_string()
    }

    /// Submits the experiment and follows it to its end.
    fn train(&self, job: &str, sets: &[&str]) -> Value {
        let (training, validation) =
            (format!("data.training={}", self.data()), format!("data.validation={}", self.data()));
        let sets = sets.iter().copied().chain([training.as_str(), validation.as_str()]);
        let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
        let args = [
            "train",
            &self.file,
            "--workers",
            "2",
            "--image",
            "i",
            "--job",
            job,
            "--spec",
            "spec.yaml",
        ];
        let place = ["--platform", "kube", "--namespace", NAMESPACE, "--json"];
        let mut command = self.place.command(&[&args[..], &place, &sets].concat());
        command.env("KUBECONFIG", self.cluster.server.kubelet.folder().join("kubeconfig"));
        let output = command.output().expect("the program starts");
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{err}");
        self.trained(job)
    }

    /// The weights of a job.
    fn trained(&self, job: &str) -> Value {
        let run: PathBuf = self.cluster.server.kubelet.folder().join("runs").join(job);
        weights_hash(&newest(&run))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path().join("work").join(name)).expect("a file")
    }
}

#[test]
fn what_records_are_read_with_reaches_the_pods_of_a_job() {
    let scene = Scene::new();
    let alone = scene.alone(&[]);
    assert!(alone.is_string(), "{alone}");
    assert_eq!(scene.train("along", &[]), alone);

    let inline = scene.read("x.yaml").replace("people.csv", &scene.data());
    let files = json!({
        "experiment.yaml": inline,
        "stats.json": scene.read("stats.json"),
        "lists_cities.txt": scene.read("lists/cities.txt"),
    });
    scene.cluster.put("/api/v1/configmaps", "people", json!({"data": files}));
    let source = json!({"inline": null, "configMap": {"name": "people", "key": "experiment.yaml"}});
    scene.cluster.submit(&job("mapped", (1, 2), json!({"experiment": source})));
    wait_until("it is complete", || scene.cluster.phase("mapped") == "Complete");
    assert_eq!(scene.trained("mapped"), alone);
}

#[test]
fn what_is_missing_is_made_in_the_pods_from_the_data() {
    let scene = Scene::new();
    for name in ["work/stats.json", "work/lists/cities.txt"] {
        std::fs::remove_file(scene.place.path().join(name)).expect("removed");
    }
    let alone = scene.alone(&["data.fit=true"]);
    assert_eq!(scene.train("fitted", &["data.fit=true"]), alone);
}
