//! `salamander manifest serve`: models to be served on a cluster, as YAML.

use salamander_kube::Error;
use salamander_kube::serving::{ServingDeployment, documents};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to serve, as `salamander serve` takes it; the claim's files are below /models
    #[arg(required = true, value_name = "[NAME[/VERSION]=]MODEL")]
    models: Vec<String>,
    /// The name of all objects
    #[arg(long, default_value = "salamander-serve")]
    name: String,
    /// Their namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The image with this program
    #[arg(long)]
    image: String,
    /// The claim with the models: the folder of runs, or exported folders
    #[arg(long, value_name = "NAME")]
    storage_claim: String,
    /// The fewest pods
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_replicas: u32,
    /// The most pods
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_replicas: u32,
    /// Requests that wait in a pod, on average, above which there are more pods
    #[arg(long, value_name = "N", default_value_t = 8)]
    waiting: u32,
    /// Cores of a pod
    #[arg(long, default_value = "2")]
    cpu: String,
    /// Memory of a pod
    #[arg(long, default_value = "1Gi")]
    memory: String,
    /// The secret whose key `token` clients must send
    #[arg(long, value_name = "NAME")]
    token_secret: Option<String>,
    /// Print a ServingRuntime and an InferenceService of KServe instead
    #[arg(long)]
    kserve: bool,
    /// More arguments of `salamander serve`, such as --watch
    #[arg(last = true, value_name = "ARG")]
    arguments: Vec<String>,
}

/// The manifest.
pub(crate) fn text(args: &Args) -> Result<String, Error> {
    let deployment = ServingDeployment {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        models: args.models.clone(),
        arguments: args.arguments.clone(),
        claim: args.storage_claim.clone(),
        min_replicas: args.min_replicas,
        max_replicas: args.max_replicas,
        waiting: args.waiting,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        token_secret: args.token_secret.clone(),
    };
    let objects = match args.kserve {
        true => deployment.kserve_objects()?,
        false => deployment.objects()?,
    };
    Ok(documents(&objects))
}
