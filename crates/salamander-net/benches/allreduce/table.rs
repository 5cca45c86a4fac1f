//! The figures as a table, with their ratios to Gloo.

use crate::recovery::Recovery;
use crate::speed::{Speed, Way};

/// Prints everything.
pub(crate) fn print(speeds: &[Speed], recoveries: &[Recovery]) {
    println!("\nsum of f32 in place on one host; x: times as fast as Gloo, or of Gloo's CPU time");
    println!(
        "{:>2} {:>8} {:>8} {:>10} {:>7} {:>9} {:>7}",
        "n", "size", "way", "ms", "x", "cpu s/GB", "x"
    );
    for speed in speeds {
        let gloo = speed.way("gloo");
        for way in &speed.ways {
            print_way(speed, way, gloo);
        }
    }
    println!("\nthe tree's order to the order of ranks, same run; 3 members have no whole nodes");
    for speed in speeds {
        for (ranks, tree) in [("shm", "shm-tree"), ("tcp", "tcp-tree"), ("tls", "tls-tree")] {
            if let (Some(ranks), Some(tree)) = (speed.way(ranks), speed.way(tree)) {
                let time = tree.milliseconds / ranks.milliseconds;
                let cpu = tree.cpu_per_gb / ranks.cpu_per_gb;
                let (members, size) = (speed.members, size(speed.bytes));
                println!("{members:>2} {size:>8} {:>5} {time:>7.3} cpu {cpu:>7.3}", ranks.name);
            }
        }
    }
    println!("\nkill of one in four to the next right sum of 16 MB");
    let gloo = recoveries.iter().find(|recovery| recovery.name == "gloo");
    for recovery in recoveries {
        let ratio = gloo.map(|gloo| recovery.milliseconds / gloo.milliseconds);
        println!("{:>5} {:>8.1} ms {}", recovery.name, recovery.milliseconds, times(ratio));
    }
}

fn print_way(speed: &Speed, way: &Way, gloo: Option<&Way>) {
    let faster = gloo.map(|gloo| gloo.milliseconds / way.milliseconds);
    let cpu = gloo.map(|gloo| way.cpu_per_gb / gloo.cpu_per_gb);
    let size = size(speed.bytes);
    println!(
        "{:>2} {size:>8} {:>8} {:>10.4} {:>7} {:>9.3} {:>7}",
        speed.members,
        way.name,
        way.milliseconds,
        times(faster),
        way.cpu_per_gb,
        times(cpu)
    );
}

fn size(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("{} KB", bytes >> 10),
        megabytes => format!("{megabytes} MB"),
    }
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!("{ratio:.2}x"))
}
