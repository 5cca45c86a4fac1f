//! The program `salamander`, with the models of the zoo and those that exist only to be tested.

use std::process::ExitCode;

use model_zoo::cifar::cnn::Cnn;
use model_zoo::cifar::mobilenet::CifarMobileNet;
use model_zoo::imagenet::trial::ImageNetTrial;
use model_zoo::mnist;
use model_zoo::recommend::deepfm::DeepFm;
use model_zoo::recommend::dnn::Dnn;
use model_zoo::ring_gan::RingGan;
use model_zoo::text::bert::BertPairs;
use model_zoo::text::gpt::GptBytes;
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
        Cnn,
        CifarMobileNet,
        ImageNetTrial,
        RingGan,
        DeepFm,
        Dnn,
        BertPairs,
        GptBytes,
        Resilient,
        People,
        Points,
        NextToken,
        Factors,
        Tally,
        TableTally,
    ])
}
