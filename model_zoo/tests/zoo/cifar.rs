//! Pictures in training and in evaluation: augmented from their place in the run, or as they are.

use std::sync::Arc;

use model_zoo::cifar::{Picture, PictureBatch};
use salamander::prelude::*;
use salamander_core::experiment::OnBadRecord;
use salamander_core::order::{Order, Shuffle};
use salamander_core::plan::{MicroBatch, Slice};
use salamander_data::generate::Pictures;
use salamander_data::{Dataset, Format, open, sink};
use salamander_train::example::ExampleContext;
use salamander_train::loader::{LoadJob, LoaderOptions, load};

fn pictures() -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data_batch_1.bin");
    let mut file = sink::create(&path, Format::Cifar).expect("created");
    let world = Pictures::new(1);
    (0..4).for_each(|record| file.write(&world.draw(record).row()).expect("written"));
    file.finish().expect("finished");
    let dataset = Dataset::new(Arc::from(open(&[path], None).expect("opened")));
    (folder, dataset.expect("a dataset"))
}

fn loaded(dataset: &Dataset, k: u32, augment: Option<u64>) -> Vec<f32> {
    let slice = Slice { name: MicroBatch { epoch: 0, step: 3, k }, positions: 0..4 };
    let order = Order::new(dataset.len(), Shuffle::None, 1, 0);
    let options = LoaderOptions {
        device: Device::flex(),
        on_bad_record: OnBadRecord::Fail,
        reading: ExampleContext::labelled(),
        augment,
        threads: 1,
    };
    let loaded = load::<Picture>(dataset, &LoadJob { slice, order }, &options).expect("loaded");
    let PictureBatch { image, .. } = loaded.batch.expect("four records");
    image.into_data().iter::<f32>().collect()
}

#[test]
fn pictures_are_moved_in_training_by_their_place_in_the_run() {
    let (_folder, dataset) = pictures();
    let plain = loaded(&dataset, 0, None);
    assert_eq!(plain, loaded(&dataset, 1, None), "evaluation takes pictures as they are");
    let trained = loaded(&dataset, 0, Some(7));
    assert_eq!(trained, loaded(&dataset, 0, Some(7)), "whoever loads it, and however often");
    let others = [plain, loaded(&dataset, 1, Some(7)), loaded(&dataset, 0, Some(8))];
    assert!(others.iter().all(|other| *other != trained), "another seed or micro-batch");
}
