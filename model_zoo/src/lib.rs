//! Models to run, to read and to start from: one file each, with an experiment file beside its data.
//!
//! # Layout
//! - [`cifar`]: small colour pictures, three networks (`cifar/*.yaml`)
//! - `flow`, behind the feature of that name: digits, clicks and reviews made ready for training (`flow/*.yaml`)
//! - [`imagenet`]: photos in folders, ResNets and MobileNetV2 with torchvision's weights (`imagenet/const.yaml`)
//! - [`mnist`]: handwritten digits, four networks (`mnist/*.yaml`)
//! - [`recommend`]: what people earn, click and like, eight networks on embedding tables (`recommend/*.yaml`)
//! - `rings`: what `salamander new` writes and `salamander demo` trains
//! - [`ring_gan`]: two networks against each other, with an optimizer each (`gan/ring_gan.yaml`)
//! - [`sequence`]: tokens, read by a transformer's encoder (`sequence/encoder.yaml`)
//! - [`tabular`]: irises and hearts (`tabular/*.yaml`)
//! - [`text`]: reviews and pairs of texts, told apart by BERT or RoBERTa (`text/bert.yaml`, `text/pairs.yaml`);
//!   classifiers of Hugging Face as they are; a small GPT (`text/gpt.yaml`)
//! - `classified_image`: how networks of small pictures are written as ONNX
//! - `memory`: how long the program keeps what it has freed
//! - [`own_loop`]: a training loop written by hand on the library's pieces

pub mod cifar;
mod classified_image;
#[cfg(feature = "flow")]
pub mod flow;
pub mod imagenet;
#[cfg(feature = "mimalloc")]
pub mod memory;
pub mod mnist;
pub mod own_loop;
pub mod recommend;
pub mod ring_gan;
// The model that `salamander new` writes is also the one that is shown: there is one to keep right.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a program's file, of which only the model is used"
)]
pub mod rings;
pub mod sequence;
pub mod tabular;
pub mod text;

use salamander::Models;

/// All models of the zoo.
pub fn models() -> Models {
    salamander::models![
        cifar::cnn::Cnn,
        cifar::mobilenet::CifarMobileNet,
        cifar::resnet20::ResNet20,
        imagenet::trial::ImageNetTrial,
        mnist::conv16::Conv16,
        mnist::conv32::Conv32,
        mnist::filters::Filters,
        mnist::mlp::Mlp,
        recommend::dcn::Dcn,
        recommend::deepfm::DeepFm,
        recommend::dnn::Dnn,
        recommend::frappe::FrappeDeepFm,
        recommend::ncf::Ncf,
        recommend::prepared::PreparedClicks,
        recommend::wide_deep::WideDeep,
        recommend::xdeepfm::XDeepFm,
        ring_gan::RingGan,
        rings::Mlp,
        sequence::SequenceEncoder,
        tabular::heart::Heart,
        tabular::iris::Iris,
        text::bert::BertPairs,
        text::bert::BertReviews,
        text::foreign::TextClassifier,
        text::gpt::GptBytes,
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_model_is_on_the_page_of_the_zoo() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/zoo.md");
        let page = std::fs::read_to_string(page).expect("the guide");
        for model in super::models().iter() {
            let name = model.name();
            assert!(page.contains(&format!("| `{name}`")), "zoo.md has no row of {name}");
        }
    }
}
