//! The program `salamander`, with the models of the zoo and those that exist only to be tested.

use std::process::ExitCode;

use model_zoo::mnist;
use model_zoo::recommend::deepfm::DeepFm;
use model_zoo::recommend::dnn::Dnn;
use model_zoo::ring_gan::RingGan;
use tests::factors::Factors;
use tests::next_token::NextToken;
use tests::people::People;
use tests::points::Points;
use tests::resilient::Resilient;
use tests::tally::{TableTally, Tally};

fn main() -> ExitCode {
    salamander::main(salamander::models![
        mnist::conv16::Conv16,
        mnist::mlp::Mlp,
        RingGan,
        DeepFm,
        Dnn,
        Resilient,
        People,
        Points,
        NextToken,
        Factors,
        Tally,
        TableTally,
    ])
}
