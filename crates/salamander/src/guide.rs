//! Compiles the code of the guide (`docs/guide`) as tests of this crate, so that none of it can become wrong unnoticed;
//! and the examples of the derives, whose own crate builds nothing that they could use.
//! Only `cargo test --doc` sees this module.

#[doc = include_str!("../../../docs/guide/src/introduction.md")]
struct Introduction;

#[doc = include_str!("../../../docs/guide/src/first_model.md")]
struct FirstModel;

#[doc = include_str!("../../../docs/guide/src/data.md")]
struct YourData;

#[doc = include_str!("../../../docs/guide/src/hyperparameters.md")]
struct Hyperparameters;

#[doc = include_str!("../../../docs/guide/src/raw_to_served.md")]
struct RawToServed;

#[cfg(feature = "models")]
#[doc = include_str!("../../../docs/guide/src/port_pytorch.md")]
struct PortPyTorch;

#[cfg(feature = "models")]
#[doc = include_str!("../../../docs/guide/src/bert.md")]
struct FineTuneBert;

#[doc = include_str!("../../../docs/guide/src/search.md")]
struct Searches;

#[doc = include_str!("../../../docs/guide/src/workers.md")]
struct SeveralWorkers;

#[doc = include_str!("../../../docs/guide/src/tables.md")]
struct EmbeddingTables;

#[doc = include_str!("../../../docs/guide/src/pipelines.md")]
struct Pipelines;

#[doc = include_str!("../../../docs/guide/src/kubernetes.md")]
struct Kubernetes;

#[doc = include_str!("../../../docs/guide/src/devices.md")]
struct Devices;

#[doc = include_str!("../../../docs/guide/src/from_code.md")]
struct RunFromCode;

#[doc = include_str!("../../../docs/guide/src/own_loop.md")]
struct OwnLoop;

#[doc = include_str!("../../../docs/guide/src/custom_reader.md")]
struct CustomReader;

#[doc = include_str!("../../../docs/guide/src/zoo.md")]
struct ModelZoo;

#[doc = include_str!("../../../docs/guide/src/troubleshooting.md")]
struct Troubleshooting;

#[doc = include_str!("../../../docs/guide/src/glossary.md")]
struct Glossary;

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../../salamander-derive/src/hparams.md")]
struct DeriveHparams;

#[doc = include_str!("../../salamander-derive/src/example.md")]
struct DeriveExample;
