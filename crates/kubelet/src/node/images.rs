//! Which images go when the disk is full: those that nobody uses, who was used longest ago first. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use capstan_clock::Timestamp;

use crate::{lifecycle::since, runtime::ImageRecord};

/// How full the disk may be before images go, and how full it may be after, in percent.
const HIGH: u64 = 85;
const LOW: u64 = 80;
/// An image that has just been pulled is about to be used.
const MINIMUM_AGE: Duration = Duration::from_secs(120);

/// How many images the node's status tells, and how many names of each.
const MAX_TOLD: usize = 50;
const MAX_NAMES: usize = 5;

/// What the node's status tells of its images: the names and bytes of the largest.
pub(super) fn largest(mut images: Vec<ImageRecord>) -> Vec<(Vec<String>, u64)> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let told = |image: ImageRecord| {
        let size = image.size;
        (image.digests.into_iter().chain(image.names).take(MAX_NAMES).collect(), size)
    };
    images.into_iter().take(MAX_TOLD).map(told).collect()
}

/// What is known of the images.
#[derive(Debug, Default)]
pub(super) struct ImageGc {
    /// When each was first seen, and when it was last used.
    known: BTreeMap<String, (Timestamp, Option<Timestamp>)>,
}

impl ImageGc {
    /// Takes note of the images that there are, and of those that containers are made of, by id or name.
    pub(super) fn observe(&mut self, images: &[ImageRecord], used: &BTreeSet<String>, now: Timestamp) {
        self.known.retain(|id, _| images.iter().any(|image| image.id == *id));
        for image in images {
            let entry = self.known.entry(image.id.clone()).or_insert((now, None));
            if used.contains(&image.id) || image.names.iter().any(|name| used.contains(name)) {
                entry.1 = Some(now);
            }
        }
    }

    /// The images that can go now, in their order.
    pub(super) fn unused<'a>(&self, images: &'a [ImageRecord], now: Timestamp) -> Vec<&'a ImageRecord> {
        let mut unused: Vec<_> = images
            .iter()
            .filter_map(|image| Some((image, *self.known.get(&image.id)?)))
            .filter(|(image, (seen, used))| !image.pinned && *used != Some(now) && since(now, *seen) >= MINIMUM_AGE)
            .collect();
        unused.sort_by_key(|(_, (seen, used))| (*used, *seen));
        unused.into_iter().map(|(image, _)| image).collect()
    }
}

/// How many bytes have to be freed, when the disk is too full.
pub(super) fn to_free(capacity: u64, available: u64) -> Option<u64> {
    let used = 100 - (available * 100 / capacity.max(1)).min(100);
    (capacity > 0 && used >= HIGH).then(|| (capacity / 100 * (100 - LOW)).saturating_sub(available))
}

/// What is said when that was not enough.
pub(super) fn not_enough(capacity: u64, available: u64, freed: u64) -> String {
    let used = 100 - (available * 100 / capacity.max(1)).min(100);
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
    let size = format!("{:.1} GiB", capacity as f64 / f64::from(1 << 30));
    format!(
        "Insufficient free disk space on the node's image filesystem ({used}% of {size} used). Failed to free \
         sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used \
         by active images, logs, volumes, or other data."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_used_longest_ago_goes_first() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let image = |id: &str, pinned| ImageRecord {
            id: id.into(),
            names: vec![format!("{id}:v1")],
            size: 1,
            pinned,
            ..ImageRecord::default()
        };
        let images = [image("a", false), image("b", false), image("c", false), image("pause", true)];
        let used = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let mut gc = ImageGc::default();
        gc.observe(&images, &used(&["b"]), at(0));
        gc.observe(&images, &used(&["c:v1"]), at(60));
        let ids = |gc: &ImageGc, now| gc.unused(&images, at(now)).iter().map(|i| i.id.clone()).collect::<Vec<_>>();
        assert!(ids(&gc, 100).is_empty(), "all are new");
        gc.observe(&images, &used(&["c:v1"]), at(200));
        assert_eq!(ids(&gc, 200), ["a", "b"], "the one in use stays");
        gc.observe(&images, &used(&[]), at(300));
        assert_eq!(ids(&gc, 300), ["a", "b", "c"]);
        assert_eq!(to_free(1000, 200), None);
        assert_eq!(to_free(1000, 150), Some(50));
        assert_eq!(to_free(0, 0), None);
    }

    #[test]
    fn the_largest_are_told() {
        let image = |size| {
            let names = (0..4).map(|name| format!("i:{name}")).collect();
            ImageRecord { names, digests: vec!["i@a".into(), "i@b".into()], size, ..ImageRecord::default() }
        };
        let told = largest((1..=60).map(image).collect());
        assert_eq!((told.len(), told[0].1, told[49].1), (50, 60, 11));
        assert_eq!(told[0].0, ["i@a", "i@b", "i:0", "i:1", "i:2"]);
    }
}
