//! What is written and sent is what the real tools read: `tensorboard` and an `mlflow server`, from PyPI, in a Python
//! that `SALAMANDER_PYTHON` names.

mod artifacts;
mod folder;
mod mlflow;
mod mlflow_server;
mod proxy;
mod python;
mod tensorboard;
mod traces;
