//! Examples from text that are kept after they were decoded.

use std::sync::Arc;

use salamander::__private::Example as _;
use salamander::prelude::*;
use salamander::train::{Epoch, Loader};
use salamander_data::{Dataset, open};

#[derive(Example)]
struct Kept {
    #[input(missing = -1.0)]
    x: f32,
    #[input(columns = ["x", "y"], missing = 0.0)]
    both: [f64; 2],
    #[input(ragged = "|", hash = 1000)]
    genres: String,
    #[input(columns = ["city", "genres"], hash = 1000)]
    place: [String; 2],
    #[label(classes = ["no", "yes"])]
    bought: String,
}

/// Everything that is in the batches of two epochs, as bytes.
fn epochs(dataset: &Arc<Dataset>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for number in 0..2 {
        let epoch = Epoch { number, batch: 7, seed: 3 };
        for loaded in Loader::epoch::<Kept>(dataset, epoch, &Device::flex()).expect("starts") {
            let batch = loaded.expect("loads").batch.expect("records");
            all.push(batch.x.into_data().as_bytes().to_vec());
            all.push(batch.both.into_data().as_bytes().to_vec());
            all.push(batch.place.into_data().as_bytes().to_vec());
            all.push(batch.bought.into_data().as_bytes().to_vec());
            all.push(format!("{:?}", batch.genres).into_bytes());
        }
    }
    all
}

/// Records of text are decoded once: later epochs, and later processes, get the same bytes from the cache.
#[test]
fn decoded_records_are_kept_and_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("people.csv");
    let mut text = String::from("x,y,genres,city,bought\n");
    for i in 0..50 {
        let x = if i % 5 == 0 { String::new() } else { format!("{}", i as f32 / 3.0) };
        text += &format!("{x},{i},a|g{},Zürich {},{}\n", i % 3, i % 4, ["no", "yes"][i % 2]);
    }
    std::fs::write(&file, text).expect("written");
    let opened =
        || Dataset::new(Arc::from(open(std::slice::from_ref(&file), None).expect("opens")));
    let opened = || opened().expect("counted");
    let plain = epochs(&Arc::new(opened()));
    let run = folder.path().join("run");
    std::fs::create_dir(&run).expect("made");
    let kept = |dataset: &Dataset| {
        let mut count = 0;
        let all: Vec<u64> = (0..50).collect();
        dataset.cache().expect("text is kept").read(&all, &mut |_, _| count += 1);
        count
    };
    for already in [0, 50] {
        let dataset = Arc::new(opened().with_cache(1 << 20, Some(&run)));
        assert!(Kept::PACKED && std::fs::read_dir(&run).expect("read").count() == already / 50);
        assert_eq!(epochs(&dataset), plain);
        assert_eq!(kept(&dataset), 50);
    }
    // Too little room for all: some are kept, and no file is written.
    let small = tempfile::tempdir().expect("a folder");
    let dataset = Arc::new(opened().with_cache(2500, Some(small.path())));
    assert_eq!(epochs(&dataset), plain);
    assert!((1..50).contains(&kept(&dataset)));
    assert_eq!(std::fs::read_dir(small.path()).expect("read").count(), 0);
}
