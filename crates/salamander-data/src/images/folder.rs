//! A folder with one subfolder per class as a shard, as ImageNet is usually unpacked.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::Image;
use crate::open::{Opened, Opening};
use crate::reader::{Each, Extent, OneShard};
use crate::{Error, Row, Value};

/// Extensions of the files that are read.
const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];

/// An indexed folder of images, which is one shard.
///
/// A row has `image` (red, green and blue bytes, row by row), `height`, `width`, `label` (the number of the
/// class in the order of names), `class` (the subfolder's name) and `file` (the path inside the folder).
#[derive(Debug)]
struct ImageFolder {
    path: PathBuf,
    /// The label of a class is its place here.
    classes: Vec<String>,
    files: Vec<ImageFile>,
}

#[derive(Debug)]
struct ImageFile {
    /// Inside the folder, with `/` between names.
    name: String,
    class: usize,
}

/// True when a folder has subfolders and no files, hidden ones aside, and the first file in the first
/// subfolder is an image.
pub(super) fn looks_like(path: &Path) -> bool {
    let Ok(classes) = list(path) else { return false };
    let Some(first) = classes.first().filter(|_| classes.iter().all(|entry| entry.folder)) else {
        return false;
    };
    let files = list(&path.join(&first.name)).unwrap_or_default();
    files.iter().find(|entry| !entry.folder).is_some_and(|entry| is_image(&entry.name))
}

pub(super) fn open(opening: Opening<'_>) -> Result<Opened, Error> {
    Ok(Opened::reader(ImageFolder::open(opening.path())?))
}

impl ImageFolder {
    /// Lists the files of all classes, also in folders inside theirs, sorted by name.
    fn open(path: &Path) -> Result<ImageFolder, Error> {
        let (mut classes, mut files) = (Vec::new(), Vec::new());
        for entry in list(path)? {
            if !entry.folder {
                let reason = "a file where each folder is a class: move it into one";
                return Err(Error::form(path.join(entry.name), reason));
            }
            let first = files.len();
            walk(path, &entry.name, classes.len(), &mut files)?;
            if files.len() == first {
                return Err(Error::NoFiles { path: path.join(entry.name) });
            }
            classes.push(entry.name);
        }
        if files.is_empty() {
            return Err(Error::NoFiles { path: path.to_owned() });
        }
        Ok(ImageFolder { path: path.to_owned(), classes, files })
    }
}

impl OneShard for ImageFolder {
    fn extent(&self) -> Extent<'_> {
        Extent { path: &self.path, records: self.files.len() as u64 }
    }

    fn read_range(&self, records: Range<u64>, each: &mut Each<'_>) -> Result<(), Error> {
        for record in records {
            let ImageFile { name, class } = &self.files[record as usize];
            let path = self.path.join(name);
            let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
            let image = Image::decode(&bytes)
                .map_err(|reason| Error::Rejected(format!("{name}: {reason}")))
                .map_err(|error| error.at(&self.path, None, record))?;
            let int = |value: i64| Value::Ints(vec![value].into());
            let row = Row::new(vec![
                ("image".into(), Value::Bytes(&image.pixels)),
                ("height".into(), int(image.height.into())),
                ("width".into(), int(image.width.into())),
                ("label".into(), int(*class as i64)),
                ("class".into(), Value::Text(&self.classes[*class])),
                ("file".into(), Value::Text(name)),
            ]);
            each(record, row).map_err(|error| error.at(&self.path, None, record))?;
        }
        Ok(())
    }
}

struct Listed {
    name: String,
    folder: bool,
}

/// What a folder has, sorted by name, hidden names left out.
fn list(folder: &Path) -> Result<Vec<Listed>, Error> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let name = entry.file_name().into_string();
        let wrong = |name| Error::form(folder.join(name), "the name is not UTF-8: rename it");
        let name = name.map_err(wrong)?;
        if !name.starts_with('.') {
            entries.push(Listed { name, folder: entry.path().is_dir() });
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn is_image(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

fn walk(root: &Path, folder: &str, class: usize, files: &mut Vec<ImageFile>) -> Result<(), Error> {
    for entry in list(&root.join(folder))? {
        let name = format!("{folder}/{}", entry.name);
        if entry.folder {
            walk(root, &name, class, files)?;
        } else if is_image(&entry.name) {
            files.push(ImageFile { name, class });
        } else {
            let reason = "neither a jpeg nor a png file: remove it";
            return Err(Error::form(root.join(name), reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, RgbImage};
    use proptest::prelude::*;

    use super::*;
    use crate::Reader;

    fn encoded(format: ImageFormat, width: u32, height: u32, value: u8) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        let image = RgbImage::from_pixel(width, height, image::Rgb([value, 0, 255]));
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn folder(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        folder
    }

    #[test]
    fn classes_are_numbered_by_name() {
        let folder = folder(&[
            ("dog/b.png", encoded(ImageFormat::Png, 3, 2, 9)),
            ("dog/a/deep.JPG", encoded(ImageFormat::Jpeg, 5, 4, 9)),
            ("cat/x.jpeg", encoded(ImageFormat::Png, 1, 1, 8)),
            ("cat/.hidden", Vec::new()),
        ]);
        assert!(looks_like(folder.path()));
        let images = ImageFolder::open(folder.path()).unwrap();
        assert_eq!(images.classes, ["cat", "dog"]);
        let mut found = Vec::new();
        images
            .read(0, 0..3, &mut |record, row| {
                let (height, width) = (row.ints("height")?[0], row.ints("width")?[0]);
                assert_eq!(row.bytes("image")?.len() as i64, 3 * height * width);
                let (label, file) = (row.ints("label")?[0], row.text("file")?.to_owned());
                assert_eq!(row.text("class")?, images.classes[label as usize]);
                found.push((record, height, width, label, file));
                Ok(())
            })
            .unwrap();
        assert_eq!(
            found,
            [
                (0, 1, 1, 0, "cat/x.jpeg".to_owned()),
                (1, 4, 5, 1, "dog/a/deep.JPG".to_owned()),
                (2, 2, 3, 1, "dog/b.png".to_owned()),
            ]
        );
    }

    #[test]
    fn a_png_keeps_every_pixel() {
        let bytes = encoded(ImageFormat::Png, 3, 2, 9);
        assert_eq!(Image::decode(&bytes).unwrap().pixels, [9, 0, 255].repeat(6));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let png = encoded(ImageFormat::Png, 8, 8, 1);
        let broken = folder(&[("a/ok.png", png.clone()), ("a/z.png", png[..40].to_vec())]);
        let images = ImageFolder::open(broken.path()).unwrap();
        let error = images.read(0, 0..2, &mut |_, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains(": record 1: a/z.png: "), "{error}");
        assert!(error.is_bad_data());
        let check = |files: &[(&str, Vec<u8>)], ending: &str| {
            let folder = folder(files);
            let message = ImageFolder::open(folder.path()).unwrap_err().to_string();
            assert!(message.ends_with(ending), "{message}");
        };
        check(&[("a.png", vec![])], "a.png: a file where each folder is a class: move it into one");
        check(&[("a/b.gif", vec![])], "a/b.gif: neither a jpeg nor a png file: remove it");
        check(&[("a/.x", vec![])], "a: no data files in this folder");
        check(&[], "no data files in this folder");
    }

    #[test]
    fn a_size_that_cannot_be_true_takes_no_memory() {
        let mut png = encoded(ImageFormat::Png, 8, 8, 1);
        png[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(Image::decode(&png).is_err());
    }

    proptest! {
        #[test]
        fn damaged_images_are_decoded_or_refused(
            at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(),
        ) {
            for format in [ImageFormat::Png, ImageFormat::Jpeg] {
                let mut bytes = encoded(format, 20, 10, 77);
                let at = at.index(bytes.len());
                bytes[at] ^= 1u8 << bit;
                let _ = Image::decode(&bytes);
                let _ = Image::decode(&bytes[..cut.index(bytes.len())]);
            }
        }
    }
}
