//! `salamander manifest flow`: a flow to be run on a cluster, as YAML.

use salamander_kube::Error;
use salamander_kube::flow::FlowPod;
use salamander_kube::serving::documents;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the job
    #[arg(long, default_value = "salamander-flow")]
    name: String,
    /// Its namespace
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The image, with a program that has flows (feature `flow`)
    #[arg(long)]
    image: String,
    /// The claim with the data, mounted at /data, which the output goes to too
    #[arg(long, value_name = "NAME")]
    storage_claim: String,
    /// Processes of the pod that share the flow
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: u32,
    /// How often a pod that was lost is replaced
    #[arg(long, value_name = "N", default_value_t = 6)]
    retries: u32,
    /// Cores of the pod
    #[arg(long, default_value = "2")]
    cpu: String,
    /// Memory of the pod
    #[arg(long, default_value = "4Gi")]
    memory: String,
    /// What to run, as `salamander flow` takes it: run NAME --in /data/FILES --out /data/FOLDER
    #[arg(last = true, required = true, value_name = "ARG")]
    arguments: Vec<String>,
}

/// The manifest.
pub(crate) fn text(args: &Args) -> Result<String, Error> {
    let flow = FlowPod {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        arguments: args.arguments.clone(),
        claim: args.storage_claim.clone(),
        workers: args.workers,
        retries: args.retries,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
    };
    Ok(documents(&[flow.object()?]))
}
