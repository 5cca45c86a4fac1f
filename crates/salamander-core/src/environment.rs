//! The environment variables that the program reads, in one table: readers take names from here, and the guide's page
//! is written from it.

/// A variable, or all whose names begin alike (`AWS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds where it is not set.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub meaning: &'static str,
}

impl Variable {
    /// What the names of a family begin with; a name that stands alone is all of it.
    pub fn prefix(&self) -> &'static str {
        self.name.trim_end_matches('*')
    }
}

/// What a role logs.
pub const LOG: Variable = Variable {
    name: "SALAMANDER_LOG",
    default: "info",
    meaning: "What masters, workers and servers log: a level (`debug`), or levels of modules \
              (`info,salamander_train=debug`).",
};

/// How a role logs.
pub const LOG_FORMAT: Variable = Variable {
    name: "SALAMANDER_LOG_FORMAT",
    default: "text",
    meaning: "`json` makes each line of a log an object.",
};

/// Where members answer probes.
pub const HEALTH: Variable = Variable {
    name: "SALAMANDER_HEALTH",
    default: "nowhere",
    meaning: "Where workers and parameter servers that are not in pods answer `/healthz`, `/readyz` and `/metrics`: \
              `IP:PORT`; with port 0 each takes a free one, and its log says which.",
};

/// The folder that keeps blocks of objects.
pub const CACHE_DIR: Variable = Variable {
    name: "SALAMANDER_CACHE_DIR",
    default: "none is kept",
    meaning: "A folder that keeps blocks of data read from `s3://` and other addresses; several processes may share \
              it.",
};

/// The size of that folder.
pub const CACHE_BYTES: Variable = Variable {
    name: "SALAMANDER_CACHE_BYTES",
    default: "10 GiB",
    meaning: "The most bytes that the folder may have.",
};

/// Where torchvision's weights come from.
pub const TORCHVISION: Variable = Variable {
    name: "SALAMANDER_TORCHVISION",
    default: "https://download.pytorch.org/models",
    meaning: "The address or folder that `pretrained: true` fetches torchvision's weights from, if Python has not \
              fetched them on this machine (`TORCH_HOME`, `~/.cache/torch`).",
};

/// Threads of the CPU's kernels.
pub const THREADS: Variable = Variable {
    name: "RAYON_NUM_THREADS",
    default: "the cores of the machine; a worker's share of them",
    meaning: "Threads that a process computes with on the CPU, where neither `--threads` nor the experiment says it.",
};

/// Credentials and settings of `s3://`.
pub const S3: Variable = Variable {
    name: "AWS_*",
    default: "",
    meaning: "Credentials and settings of `s3://`: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, \
              `AWS_ENDPOINT` for another store that speaks S3, `AWS_ALLOW_HTTP=true` for one without TLS.",
};

/// Credentials of `gs://`.
pub const GCS: Variable = Variable {
    name: "GOOGLE_*",
    default: "",
    meaning: "Credentials of `gs://` (feature `gcs`): `GOOGLE_SERVICE_ACCOUNT`.",
};

/// Credentials of `az://`.
pub const AZURE: Variable = Variable {
    name: "AZURE_*",
    default: "",
    meaning: "Credentials of `az://` (feature `azure`): `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`.",
};

/// Credentials of an MLflow server.
pub const MLFLOW: Variable = Variable {
    name: "MLFLOW_TRACKING_*",
    default: "",
    meaning: "Credentials of the MLflow server that hears of a run: `MLFLOW_TRACKING_TOKEN`, or \
              `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`.",
};

/// A collector of OpenTelemetry.
pub const OTEL: Variable = Variable {
    name: "OTEL_*",
    default: "no traces",
    meaning: "The collector of OpenTelemetry that hears of runs as traces, over HTTP: \
              `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT` with `/v1/traces` behind it; \
              `OTEL_EXPORTER_OTLP_HEADERS`; `OTEL_SERVICE_NAME`. `OTEL_SDK_DISABLED=true` and \
              `OTEL_TRACES_EXPORTER=none` are off.",
};

/// The job that a pod is of.
pub const JOB: Variable = Variable {
    name: "SALAMANDER_JOB",
    default: "",
    meaning: "The job's name in each line of a log that is JSON.",
};

/// A process's number among those of a run.
pub const PROCESS: Variable = Variable {
    name: "SALAMANDER_PROCESS",
    default: "the process's id",
    meaning: "The number that tells a process from others of its run: in a pod every process has the id 1.",
};

/// The files that a job brings along.
pub const ASSETS: Variable = Variable {
    name: "SALAMANDER_ASSETS",
    default: "",
    meaning: "The folder with the statistics and vocabularies that a job on a cluster was submitted with.",
};

/// How long a parameter server waits to hand over.
pub const GRACE: Variable = Variable {
    name: "SALAMANDER_GRACE",
    default: "20",
    meaning: "Seconds that a parameter server which is asked to leave waits for a checkpoint that has its rows.",
};

/// The hub that commands talk to.
pub const HUB: Variable = Variable {
    name: "SALAMANDER_HUB",
    default: "the hub of the folder of runs",
    meaning: "The address of the hub that commands talk to, and that `train` tells of its runs, as with `--hub`.",
};

/// Who somebody is to that hub.
pub const HUB_TOKEN: Variable = Variable {
    name: "SALAMANDER_HUB_TOKEN",
    default: "none",
    meaning: "The token that commands and runs show to a hub that asks for a login.",
};

/// Where a hub keeps its store.
pub const STORE: Variable = Variable {
    name: "SALAMANDER_STORE",
    default: "a file among the runs",
    meaning: "The store of a hub, as with `--store`; a password in it is not seen by others here.",
};

/// The pod that a process is in.
pub const POD_NAME: Variable = Variable {
    name: "POD_NAME",
    default: "",
    meaning: "The name of the pod of a master or an operator; an operator without it takes part in no election.",
};

/// The namespace of that pod.
pub const POD_NAMESPACE: Variable =
    Variable { name: "POD_NAMESPACE", default: "", meaning: "The namespace of an operator's pod." };

/// The address of that pod.
pub const POD_IP: Variable = Variable {
    name: "POD_IP",
    default: "",
    meaning: "The pod's address, which tells a master whether to listen on IPv4 or IPv6.",
};

/// The process that a step of a pipeline ends with; set by pipelines, for commands that they start.
pub const PARENT: &str = "SALAMANDER_PARENT";

/// With how many seeds simulations run. Tests read it and nobody else, so that the guide does not have it.
pub const SEEDS: &str = "SALAMANDER_SEEDS";

/// For how many seconds tests of decoders try mutated bytes. Read by tests only, too.
pub const FUZZ_SECONDS: &str = "SALAMANDER_FUZZ_SECONDS";

/// Workers that have it add gradients up in the order of ranks, whose last bits depend on how many there are: what the
/// fixed tree is compared with by the bench `sums`, and nobody else has a use for.
pub const SUMS_BY_RANK: &str = "SALAMANDER_SUMS_BY_RANK";

/// What people set.
pub const FOR_PEOPLE: &[Variable] = &[
    LOG,
    LOG_FORMAT,
    HEALTH,
    CACHE_DIR,
    CACHE_BYTES,
    TORCHVISION,
    THREADS,
    HUB,
    HUB_TOKEN,
    STORE,
    S3,
    GCS,
    AZURE,
    MLFLOW,
    OTEL,
];

/// What manifests and the operator set in pods.
pub const FOR_PODS: &[Variable] = &[JOB, PROCESS, ASSETS, GRACE, POD_NAME, POD_NAMESPACE, POD_IP];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_families_have_a_prefix() {
        let all = [FOR_PEOPLE, FOR_PODS].concat();
        for (place, variable) in all.iter().enumerate() {
            let twice = all[..place].iter().any(|other| other.name == variable.name);
            assert!(!twice && variable.meaning.ends_with('.'), "{}", variable.name);
        }
        assert_eq!((S3.prefix(), LOG.prefix()), ("AWS_", "SALAMANDER_LOG"));
    }
}
